#include "ops/kernel/absent.h"
#include "ops/softmax/logsumexp.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "ops/kernel/gpu_tensors.h"
#include "ops/softmax/logsumexp_cuda.h"

namespace mpigrad::ops {

void LogSumExpAlong::run(Cuda, Inputs in, Outputs out) const {
  const auto& shape = in[0].shape();
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::log_sum_exp(shape.elements(0, axis), shape[axis], shape.elements(axis + 1, shape.rank()), read<T>(in[0]),
                      written<T>(out[0]), cuda::compute_stream());
  });
}

void ExpScaled::run(Cuda, Inputs in, Outputs out) const {
  const auto rows = in[0].dim(0), columns = in[0].dim(1);
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::exp_scaled(rows, columns, in[1].dim(0) == rows && in[1].dim(1) == 1, read<T>(in[0]), read<T>(in[1]), read<T>(in[2]),
                     written<T>(out[0]), cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(LogSumExpAlong)
MPIGRAD_ABSENT(ExpScaled)

}  // namespace mpigrad::ops
#endif
