// Biases with activations on GPUs: calls the kernels on tensors.

#include "ops/elementwise/activation.h"
#include "ops/kernel/absent.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "ops/backends/cuda/convert.h"
#include "ops/kernel/channel_rows_cuda.h"
#include "ops/kernel/gpu_tensors.h"
#include "ops/kernel/rows_of.h"

namespace mpigrad::ops {

void BiasActivation::run(Cuda, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::bias_activation(rows.count, rows.length, read<T>(in[0]), read<T>(in[1]), fused, written<T>(out[0]),
                          cuda::compute_stream());
  });
}

void BiasActivationAdjoint::run(Cuda, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  Tensor work = scratch(cuda::channel_scratch(1, rows.count, rows.length), DType::float64);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::bias_activation_adjoint(rows.count, rows.length, read<T>(in[0]), read<T>(in[1]), fused, written<double>(work),
                                  written<T>(out[0]), written<T>(out[1]), cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(BiasActivation)
MPIGRAD_ABSENT(BiasActivationAdjoint)

}  // namespace mpigrad::ops
#endif
