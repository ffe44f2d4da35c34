// Pooling on GPUs: calls the kernels on tensors.

#include "ops/kernel/absent.h"
#include "ops/pool/pool_ops.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "ops/kernel/gpu_tensors.h"
#include "ops/pool/pool_cuda.h"
#include "ops/pool/pool_problem.h"

namespace mpigrad::ops {

void AvgPool::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::avg_pool_forward(problem_of(window, in[0]), read<T>(in[0]), written<T>(out[0]), cuda::compute_stream());
  });
}

void AvgPoolAdjoint::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::avg_pool_adjoint(problem_of(window, in[0]), read<T>(in[0]), written<T>(out[0]), cuda::compute_stream());
  });
}

void LeakyAvgPool::run(Cuda, Inputs in, Outputs out) const {
  if (kernel::volume(window.out) == 0) cuda::zero(out[1].raw(), out[1].bytes());  // no window writes the signs
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::leaky_avg_pool(problem_of(window, in[0]), fused, read<T>(in[0]), written<T>(out[0]), written<std::uint8_t>(out[1]),
                         cuda::compute_stream());
  });
}

void LeakyAvgPoolAdjoint::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::leaky_avg_pool_adjoint(problem_of(window, in[0]), fused, read<T>(in[0]), read<std::uint8_t>(in[1]), written<T>(out[0]),
                                 cuda::compute_stream());
  });
}

void SignedAvgPool::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::signed_avg_pool(problem_of(window, in[0]), fused, read<T>(in[0]), read<std::uint8_t>(in[1]), written<T>(out[0]),
                          cuda::compute_stream());
  });
}

void MaxPool::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::max_pool_forward(problem_of(window, in[0]), read<T>(in[0]), written<T>(out[0]), written<std::int32_t>(out[1]),
                           cuda::compute_stream());
  });
}

void MaxPoolScatter::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::max_pool_scatter(problem_of(window, in[0]), read<T>(in[0]), read<std::int32_t>(in[1]), written<T>(out[0]),
                           cuda::compute_stream());
  });
}

void MaxPoolGather::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::max_pool_gather(problem_of(window, in[0]), read<T>(in[0]), read<std::int32_t>(in[1]), written<T>(out[0]),
                          cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(AvgPool)
MPIGRAD_ABSENT(AvgPoolAdjoint)
MPIGRAD_ABSENT(LeakyAvgPool)
MPIGRAD_ABSENT(LeakyAvgPoolAdjoint)
MPIGRAD_ABSENT(SignedAvgPool)
MPIGRAD_ABSENT(MaxPool)
MPIGRAD_ABSENT(MaxPoolScatter)
MPIGRAD_ABSENT(MaxPoolGather)

}  // namespace mpigrad::ops
#endif
