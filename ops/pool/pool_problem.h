#pragma once
// From tensors and attributes to what the kernels of a pool are asked for, on every device.

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
