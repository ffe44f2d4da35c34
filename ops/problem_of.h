#pragma once
// From tensors and attributes to what kernels are asked for, on every device. Used inside ops only.

#include "ops/conv.h"
#include "ops/pool.h"
#include "ops/problems.h"

namespace mpigrad::ops {

inline kernel::ConvProblem problem_of(const ConvAttributes& a, const Tensor& x, const Shape& w, const Tensor& y) {
  return {.batch = x.dim(0),
          .in = spatial_extent(x),
          .out = spatial_extent(y),
          .kernel = {w[1], w[2], w[3]},
          .stride = a.stride,
          .dilation = a.dilation,
          .pad_low = a.padding_low,
          .in_channels = x.dim(4),
          .out_channels = y.dim(4),
          .groups = a.groups};
}

inline kernel::PoolProblem problem_of(const Window& w, const Tensor& x) {
  return {.batch = x.dim(0),
          .in = w.in,
          .out = w.out,
          .kernel = w.kernel,
          .stride = w.stride,
          .dilation = w.dilation,
          .pad_low = w.low,
          .channels = x.dim(4)};
}

}  // namespace mpigrad::ops
