#ifndef MPIGRAD_OPS_POOL_POOL_H
#define MPIGRAD_OPS_POOL_POOL_H
// Pooling over windows of [N, D, H, W, C].

#include "framework/engine/op.h"
#include "ops/elementwise/activation_type.h"
#include "ops/extents.h"

namespace mpigrad {

struct PoolAttributes {
  Triple kernel = 1, stride = 1, dilation = 1, padding_low = 0, padding_high = 0;
  bool ceil_mode = false;  // counts a last, partial window too, also if it is the only one; none starts in the right padding
  bool count_include_pad = true;  // average pooling divides by the window inside the padded input, else by what is not padding
};

namespace local {
// D' = floor or ceil((D + low + high - dilation (kd - 1) - 1) / stride) + 1
Tensor avg_pool(const Tensor& x, const PoolAttributes& attributes);
// avg_pool(activation(x)). What stays of a fused activation for the replay is one bit for each element of x, its sign.
Tensor activated_avg_pool(const Tensor& x, Activation activation, const PoolAttributes& attributes);
// Padding never wins; the first of equal maxima takes the whole cotangent, as does the first NaN (see
// ops/elementwise/elementwise.h).
Tensor max_pool(const Tensor& x, const PoolAttributes& attributes);
}  // namespace local
// Value and place of the maximum in its window (row-major kernel index, int32, -1 for a window without elements).
std::pair<Tensor, Tensor> max_pool_with_winner(const Tensor& x, const PoolAttributes& attributes);
Extent3 pool_outputs(const Extent3& extent, const PoolAttributes& attributes);
// What average pooling multiplies sums / volume by, along one dimension of `n` elements: kernel / divisor, for outputs [first,
// last) in global coordinates. All ones where every window divides by the whole kernel.
std::vector<double> avg_pool_scale(std::int64_t n, int dimension, const PoolAttributes& attributes, std::int64_t first,
                                   std::int64_t last);
// y, sums / volume of windows of a tensor of extent `in`, whose outputs are [first, last) in global coordinates, times these.
Tensor with_divisors(Tensor y, const Extent3& in, const PoolAttributes& attributes, const Extent3& first, const Extent3& last);

namespace ops {

// The window without the rules for its outputs: extents of both sides are given.
struct Window {
  Extent3 kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, low{0, 0, 0}, in{}, out{};
};

// y[o] = sum over the window / its volume, padding counts as zeros;  xbar: AvgPoolAdjoint, and the other way round
struct AvgPool {
  Window window;
  static constexpr OpTraits traits() { return {.name = "avg_pool"}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct AvgPoolAdjoint {
  Window window;
  static constexpr OpTraits traits() { return {.name = "avg_pool_adjoint"}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// (y, signs) = average of f(x) over the window, f(x) fused, and where !(x <= 0): bit c % 8 of byte c / 8 of
// [N, D, H, W, ceil(C / 8)];  xbar = f'(x) AvgPoolAdjoint(ybar), of which only the signs of x matter
struct LeakyAvgPool {
  Window window;
  scalar::Fused fused{};
  static constexpr OpTraits traits() { return {.name = "leaky_avg_pool", .keeps_outputs = 2}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
// Given the signs, averages of f'(x) h and f'(x) times spread averages are each other's transpose.
struct LeakyAvgPoolAdjoint {
  Window window;
  scalar::Fused fused{};
  static constexpr OpTraits traits() { return {.name = "leaky_avg_pool_adjoint", .keeps_inputs = 2}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct SignedAvgPool {
  Window window;
  scalar::Fused fused{};
  static constexpr OpTraits traits() { return {.name = "signed_avg_pool", .keeps_inputs = 2}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// (y, winner) = maximum over the window and its place;  xbar = ybar sent to the winner
struct MaxPool {
  Window window;
  static constexpr OpTraits traits() { return {.name = "max_pool", .keeps_outputs = 2}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
// Given the winners, scattering to them and gathering from them are each other's transpose.
struct MaxPoolScatter {
  Window window;
  static constexpr OpTraits traits() { return {.name = "max_pool_scatter", .keeps_inputs = 2}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct MaxPoolGather {
  Window window;
  static constexpr OpTraits traits() { return {.name = "max_pool_gather", .keeps_inputs = 2}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
