#pragma once
// Conversion of tensors and attributes to the problem description of pooling kernels, on every device.

#include "ops/kernel/problems.h"
#include "ops/pool/pool_ops.h"

namespace mpigrad::ops {

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
