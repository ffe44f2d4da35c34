// Pooling on the CPU: calls the kernels on tensors.

#include "ops/pool/pool_ops.h"

#include "ops/pool/pool_kernels.h"
#include "ops/pool/pool_problem.h"

namespace mpigrad::ops {

void AvgPool::run(Cpu, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::avg_pool_forward(problem_of(window, in[0]), in[0].data<T>(), out[0].mutable_data<T>());
  });
}

void AvgPoolAdjoint::run(Cpu, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::avg_pool_adjoint(problem_of(window, in[0]), in[0].data<T>(), out[0].mutable_data<T>());
  });
}

void LeakyAvgPool::run(Cpu, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::leaky_avg_pool(problem_of(window, in[0]), fused, in[0].data<T>(), out[0].mutable_data<T>(),
                        out[1].mutable_data<std::uint8_t>());
  });
}

void LeakyAvgPoolAdjoint::run(Cpu, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::leaky_avg_pool_adjoint(problem_of(window, in[0]), fused, in[0].data<T>(), in[1].data<std::uint8_t>(),
                                out[0].mutable_data<T>());
  });
}

void SignedAvgPool::run(Cpu, Inputs in, Outputs out) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::signed_avg_pool(problem_of(window, in[0]), fused, in[0].data<T>(), in[1].data<std::uint8_t>(), out[0].mutable_data<T>());
  });
}

void MaxPool::run(Cpu, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::max_pool_forward(problem_of(window, in[0]), in[0].data<T>(), out[0].mutable_data<T>(),
                          out[1].mutable_data<std::int32_t>());
  });
}

void MaxPoolScatter::run(Cpu, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::max_pool_scatter(problem_of(window, in[0]), in[0].data<T>(), in[1].data<std::int32_t>(), out[0].mutable_data<T>());
  });
}

void MaxPoolGather::run(Cpu, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::max_pool_gather(problem_of(window, in[0]), in[0].data<T>(), in[1].data<std::int32_t>(), out[0].mutable_data<T>());
  });
}

}  // namespace mpigrad::ops
