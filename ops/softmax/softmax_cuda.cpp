// Softmax on GPUs: calls the kernels on tensors.

#include "ops/kernel/absent.h"
#include "ops/softmax/softmax.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "ops/kernel/gpu_tensors.h"
#include "ops/kernel/rows_of.h"
#include "ops/softmax/softmax_cuda_kernels.h"

namespace mpigrad::ops {

void Softmax::run(Cuda, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::softmax(rows.count, rows.length, read<T>(in[0]), written<T>(out[0]), false, cuda::compute_stream());
  });
}

void LogSoftmax::run(Cuda, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::softmax(rows.count, rows.length, read<T>(in[0]), written<T>(out[0]), true, cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(Softmax)
MPIGRAD_ABSENT(LogSoftmax)

}  // namespace mpigrad::ops
#endif
