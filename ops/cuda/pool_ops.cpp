// Pooling on GPUs: from tensors to the kernels.

#include "framework/cuda/cuda.h"
#include "ops/cuda/window_kernels.h"
#include "ops/pool.h"
#include "ops/problem_of.h"

namespace mpigrad::ops {
namespace {

// Addresses on the GPU, which data() refuses.
template <class T>
const T* read(const Tensor& x) {
  return reinterpret_cast<const T*>(x.raw());
}
template <class T>
T* write(const Tensor& x) {
  return reinterpret_cast<T*>(x.raw());
}

}  // namespace

void AvgPool::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::avg_pool_forward(problem_of(window, in[0]), read<T>(in[0]), write<T>(out[0]), cuda::compute_stream());
  });
}

void AvgPoolAdjoint::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::avg_pool_adjoint(problem_of(window, in[0]), read<T>(in[0]), write<T>(out[0]), cuda::compute_stream());
  });
}

void LeakyAvgPool::run(Cuda, Inputs in, Outputs out) const {
  if (kernel::volume(window.out) == 0) cuda::zero(out[1].raw(), out[1].bytes());  // no window looks after the inputs
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::leaky_avg_pool(problem_of(window, in[0]), slope, read<T>(in[0]), write<T>(out[0]), write<std::uint8_t>(out[1]),
                         cuda::compute_stream());
  });
}

void LeakyAvgPoolAdjoint::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::leaky_avg_pool_adjoint(problem_of(window, in[0]), slope, read<T>(in[0]), read<std::uint8_t>(in[1]), write<T>(out[0]),
                                 cuda::compute_stream());
  });
}

void SignedAvgPool::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::signed_avg_pool(problem_of(window, in[0]), slope, read<T>(in[0]), read<std::uint8_t>(in[1]), write<T>(out[0]),
                          cuda::compute_stream());
  });
}

void MaxPool::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::max_pool_forward(problem_of(window, in[0]), read<T>(in[0]), write<T>(out[0]), write<std::int32_t>(out[1]),
                           cuda::compute_stream());
  });
}

void MaxPoolScatter::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::max_pool_scatter(problem_of(window, in[0]), read<T>(in[0]), read<std::int32_t>(in[1]), write<T>(out[0]),
                           cuda::compute_stream());
  });
}

void MaxPoolGather::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::max_pool_gather(problem_of(window, in[0]), read<T>(in[0]), read<std::int32_t>(in[1]), write<T>(out[0]),
                          cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
