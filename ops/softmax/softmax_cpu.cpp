// Softmax on the CPU: calls the kernels on tensors.

#include "ops/softmax/softmax.h"

#include "ops/kernel/rows_of.h"
#include "ops/softmax/softmax_kernels.h"

namespace mpigrad::ops {

void Softmax::run(Cpu, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::softmax(rows.count, rows.length, in[0].data<T>(), out[0].mutable_data<T>());
  });
}

void LogSoftmax::run(Cpu, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::log_softmax(rows.count, rows.length, in[0].data<T>(), out[0].mutable_data<T>());
  });
}

}  // namespace mpigrad::ops
