// Matrix products on GPUs: calls the library on tensors.

#include "ops/kernel/absent.h"
#include "ops/linear/matmul.h"

#ifdef MPIGRAD_HAS_CUBLAS
#include "ops/backends/cublas/cublas_matmul.h"

namespace mpigrad::ops {

void Matmul::run(Cuda, Inputs in, Outputs out) const {
  const auto &x = in[0], &y = in[1], &c = out[0];
  const auto m = c.dim(-2), n = c.dim(-1), k = a.transpose_a ? x.dim(-2) : x.dim(-1);
  cuda::matmul(x.dtype(),
               {.batch = c.shape().elements(0, c.rank() - 2),
                .m = m,
                .n = n,
                .k = k,
                .transpose_a = a.transpose_a,
                .transpose_b = a.transpose_b,
                .stride_a = x.rank() > 2 ? m * k : 0,
                .stride_b = y.rank() > 2 ? k * n : 0},
               x.raw(), y.raw(), c.raw());
}

void Linear::run(Cuda, Inputs in, Outputs out) const {
  const auto &x = in[0], &w = in[1];
  cuda::matmul(x.dtype(), {.m = x.dim(0), .n = w.dim(0), .k = x.dim(1), .transpose_b = true}, x.raw(), w.raw(), out[0].raw(),
               {.bias = in[2] ? in[2].raw() : nullptr, .fused = fused});
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(Matmul)
MPIGRAD_ABSENT(Linear)

}  // namespace mpigrad::ops
#endif
