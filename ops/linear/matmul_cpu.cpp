// Matrix products on the CPU: calls the kernels on tensors.

#include "ops/linear/matmul.h"

#include "ops/linear/matmul_kernels.h"

namespace mpigrad::ops {

void Matmul::run(Cpu, Inputs in, Outputs out) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto &x = in[0], &y = in[1];
    const auto& c = out[0];
    const auto m = c.dim(-2), n = c.dim(-1), k = a.transpose_a ? x.dim(-2) : x.dim(-1);
    cpu::matmul<T>({.batch = c.shape().elements(0, c.rank() - 2),
                    .m = m,
                    .n = n,
                    .k = k,
                    .transpose_a = a.transpose_a,
                    .transpose_b = a.transpose_b,
                    .stride_a = x.rank() > 2 ? m * k : 0,
                    .stride_b = y.rank() > 2 ? k * n : 0},
                   x.data<T>(), y.data<T>(), out[0].mutable_data<T>());
  });
}

void Linear::run(Cpu, Inputs in, Outputs out) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::matmul<T>({.batch = 1,
                    .m = in[0].dim(0),
                    .n = in[1].dim(0),
                    .k = in[0].dim(1),
                    .transpose_a = false,
                    .transpose_b = true,
                    .stride_a = 0,
                    .stride_b = 0},
                   in[0].data<T>(), in[1].data<T>(), out[0].mutable_data<T>(),
                   {.bias = in[2] ? in[2].data<T>() : nullptr, .fused = fused});
  });
}

}  // namespace mpigrad::ops
