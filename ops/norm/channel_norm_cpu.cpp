// Statistics and normalisation per channel on the CPU: calls the kernels on tensors.

#include "ops/norm/channel_norm.h"

#include "ops/kernel/channel_rows.h"

namespace mpigrad::ops {

void ChannelMoments::run(Cpu, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], per_sample);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using E = decltype(zero);
    using T = cpu::Computed<E>;
    for (std::int64_t g = 0; g < at.groups; ++g)
      cpu::channel_moments(at.rows, at.channels, in[0].data<E>() + g * at.rows * at.channels,
                           out[0].mutable_data<T>() + g * at.channels, out[1].mutable_data<T>() + g * at.channels);
  });
}

void ChannelAffine::run(Cpu, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[1].rank() == 2);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using E = decltype(zero);
    using T = cpu::Computed<E>;
    for (std::int64_t g = 0; g < at.groups; ++g) {
      const auto first = g * at.rows * at.channels, c = g * at.channels;
      cpu::channel_affine(at.rows, at.channels, in[0].data<E>() + first, in[1].data<T>() + c, in[2].data<T>() + c,
                          in[3].data<T>() + c, fused, out[0].mutable_data<E>() + first);
    }
  });
}

void ChannelDots::run(Cpu, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[2].rank() == 2);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using E = decltype(zero);
    using T = cpu::Computed<E>;
    for (std::int64_t g = 0; g < at.groups; ++g) {
      const auto first = g * at.rows * at.channels, c = g * at.channels;
      cpu::channel_dots(at.rows, at.channels, in[0].data<E>() + first, in[1].data<E>() + first, in[2].data<T>() + c,
                        out[0].mutable_data<T>() + c, out[1].mutable_data<T>() + c);
    }
  });
}

void NormAdjoint::run(Cpu, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[2].rank() == 2);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using E = decltype(zero);
    using T = cpu::Computed<E>;
    for (std::int64_t g = 0; g < at.groups; ++g) {
      const auto first = g * at.rows * at.channels, c = g * at.channels;
      const cpu::NormOfChannels<T> of{fused, in[2].data<T>() + c, in[3].data<T>() + c, in[4].data<T>() + c, in[5].data<T>() + c};
      cpu::norm_adjoint(at.rows, at.channels, in[0].data<E>() + first, in[1].data<E>() + first, of,
                        out[0].mutable_data<E>() + first, out[1].mutable_data<T>() + c, out[2].mutable_data<T>() + c);
    }
  });
}

}  // namespace mpigrad::ops
