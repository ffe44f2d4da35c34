#pragma once
// Pooling as ops, and the rules for their outputs. Not installed.

#include <vector>

#include "ops/pool/pool.h"

namespace mpigrad {

// Factors that turn sums / volume into averages along one dimension of `n` elements: kernel / divisor, for outputs [first, last)
// in global coordinates. All ones if every window divides by the whole kernel.
std::vector<double> avg_pool_scale(std::int64_t n, int dimension, const PoolAttributes& attributes, std::int64_t first,
                                   std::int64_t last);
// y times these factors; y is sums / volume of windows of a tensor of extent `in`, for outputs [first, last) in global
// coordinates.
Tensor with_divisors(Tensor y, const Extent3& in, const PoolAttributes& attributes, const Extent3& first, const Extent3& last);

namespace ops {

// The window without the rules for its outputs: the extents of inputs and outputs are given.
struct Window {
  Extent3 kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, low{0, 0, 0}, in{}, out{};
};

// y[o] = sum over the window / its volume, padding counts as zeros;  xbar: AvgPoolAdjoint, and vice versa
struct AvgPool {
  Window window;
  static constexpr OpTraits traits() { return {.name = "avg_pool", .takes_half = true}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct AvgPoolAdjoint {
  Window window;
  static constexpr OpTraits traits() { return {.name = "avg_pool_adjoint", .takes_half = true}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// y = average of f(x) over the window, f fused; signs = !(x <= 0): bit c % 8 of byte c / 8 of [N, D, H, W, ceil(C / 8)];  xbar =
// f'(x) AvgPoolAdjoint(ybar), where f'(x) depends only on the signs of x
struct LeakyAvgPool {
  Window window;
  scalar::Fused fused{};
  static constexpr OpTraits traits() { return {.name = "leaky_avg_pool", .keeps_outputs = 2, .takes_half = true}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
// For given signs, the average of f'(x) h and f'(x) AvgPoolAdjoint(g) are each other's transpose.
struct LeakyAvgPoolAdjoint {
  Window window;
  scalar::Fused fused{};
  static constexpr OpTraits traits() { return {.name = "leaky_avg_pool_adjoint", .keeps_inputs = 2, .takes_half = true}; }
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
  static constexpr OpTraits traits() { return {.name = "max_pool", .keeps_outputs = 2, .takes_half = true}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
// Given the winners, scattering to them and gathering from them are each other's transpose.
struct MaxPoolScatter {
  Window window;
  static constexpr OpTraits traits() { return {.name = "max_pool_scatter", .keeps_inputs = 2, .takes_half = true}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct MaxPoolGather {
  Window window;
  static constexpr OpTraits traits() { return {.name = "max_pool_gather", .keeps_inputs = 2, .takes_half = true}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
