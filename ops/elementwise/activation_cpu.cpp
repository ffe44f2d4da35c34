// Biases with activations on the CPU: calls the kernels on tensors.

#include "ops/elementwise/activation.h"

#include "ops/kernel/channel_rows.h"
#include "ops/kernel/rows_of.h"

namespace mpigrad::ops {

void BiasActivation::run(Cpu, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using E = decltype(zero);
    cpu::bias_activation(rows.count, rows.length, in[0].data<E>(), in[1].data<E>(), fused, out[0].mutable_data<E>());
  });
}

void BiasActivationAdjoint::run(Cpu, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using E = decltype(zero);
    cpu::bias_activation_adjoint(rows.count, rows.length, in[0].data<E>(), in[1].data<E>(), fused, out[0].mutable_data<E>(),
                                 out[1].mutable_data<E>());
  });
}

}  // namespace mpigrad::ops
