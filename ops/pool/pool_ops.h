#pragma once
// Pooling as ops, and the rules for its outputs. Not installed.

#include <vector>

#include "ops/pool/pool.h"

namespace mpigrad {

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
