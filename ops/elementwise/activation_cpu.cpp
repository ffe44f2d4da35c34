// Biases with activations on the CPU: calls the kernels on tensors.

#include "ops/elementwise/activation.h"

#include "ops/kernel/channel_rows.h"
#include "ops/kernel/rows_of.h"

namespace mpigrad::ops {

void BiasActivation::run(Cpu, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::bias_activation(rows.count, rows.length, in[0].data<T>(), in[1].data<T>(), fused, out[0].mutable_data<T>());
  });
}

void BiasActivationAdjoint::run(Cpu, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::bias_activation_adjoint(rows.count, rows.length, in[0].data<T>(), in[1].data<T>(), fused, out[0].mutable_data<T>(),
                                 out[1].mutable_data<T>());
  });
}

}  // namespace mpigrad::ops
