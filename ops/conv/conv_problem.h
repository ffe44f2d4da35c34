#pragma once
// Conversion of tensors and attributes to the problem description of convolution kernels, on every device.

#include "ops/conv/conv.h"
#include "ops/kernel/problems.h"

namespace mpigrad::ops {

inline kernel::ConvProblem problem_of(const ConvAttributes& a, const Tensor& x, const Shape& w, const Tensor& y) {
  return {.batch = x.dim(0),
          .in = spatial_extent(x),
          .out = spatial_extent(y),
          .kernel = {w[1], w[2], w[3]},
          .stride = a.stride,
          .dilation = a.dilation,
          .pad_low = a.padding.low,
          .in_channels = x.dim(4),
          .out_channels = y.dim(4),
          .groups = a.groups};
}

}  // namespace mpigrad::ops
