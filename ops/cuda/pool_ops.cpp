// Pooling on GPUs: from tensors to the kernels.

#include "framework/cuda/cuda.h"
#include "ops/cuda/window_kernels.h"
#include "ops/pool.h"

namespace mpigrad::ops {
namespace {

kernel::PoolProblem problem_of(const Window& w, const Tensor& x) {
  return {.batch = x.dim(0),
          .in = w.in,
          .out = w.out,
          .kernel = w.kernel,
          .stride = w.stride,
          .dilation = w.dilation,
          .pad_low = w.low,
          .channels = x.dim(4)};
}

}  // namespace

void AvgPool::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::avg_pool_forward(problem_of(window, in[0]), in[0].data<T>(), out[0].mutable_data<T>(), cuda::compute_stream());
  });
}

void AvgPoolAdjoint::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::avg_pool_adjoint(problem_of(window, in[0]), in[0].data<T>(), out[0].mutable_data<T>(), cuda::compute_stream());
  });
}

void MaxPool::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::max_pool_forward(problem_of(window, in[0]), in[0].data<T>(), out[0].mutable_data<T>(),
                           out[1].mutable_data<std::int32_t>(), cuda::compute_stream());
  });
}

void MaxPoolScatter::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::max_pool_scatter(problem_of(window, in[0]), in[0].data<T>(), in[1].data<std::int32_t>(), out[0].mutable_data<T>(),
                           cuda::compute_stream());
  });
}

void MaxPoolGather::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::max_pool_gather(problem_of(window, in[0]), in[0].data<T>(), in[1].data<std::int32_t>(), out[0].mutable_data<T>(),
                          cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
