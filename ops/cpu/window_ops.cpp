// Pooling, matmul, normalisation and softmax: from tensors to the kernels of kernels.h.

#include "ops/activation.h"
#include "ops/cpu/kernels.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pool.h"
#include "ops/problem_of.h"
#include "ops/softmax.h"

namespace mpigrad::ops {
namespace {

std::int64_t rows_of(const Tensor& x) { return x.shape().elements(0, x.rank() - 1); }

template <class F>
void with_type(const Tensor& x, F&& f) {
  visit_floating(x.dtype(), f);
}

}  // namespace

void AvgPool::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::avg_pool_forward(problem_of(window, in[0]), in[0].data<T>(), out[0].mutable_data<T>());
  });
}

void AvgPoolAdjoint::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::avg_pool_adjoint(problem_of(window, in[0]), in[0].data<T>(), out[0].mutable_data<T>());
  });
}

void LeakyAvgPool::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::leaky_avg_pool(problem_of(window, in[0]), slope, in[0].data<T>(), out[0].mutable_data<T>(),
                        out[1].mutable_data<std::uint8_t>());
  });
}

void LeakyAvgPoolAdjoint::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::leaky_avg_pool_adjoint(problem_of(window, in[0]), slope, in[0].data<T>(), in[1].data<std::uint8_t>(),
                                out[0].mutable_data<T>());
  });
}

void SignedAvgPool::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::signed_avg_pool(problem_of(window, in[0]), slope, in[0].data<T>(), in[1].data<std::uint8_t>(), out[0].mutable_data<T>());
  });
}

void MaxPool::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::max_pool_forward(problem_of(window, in[0]), in[0].data<T>(), out[0].mutable_data<T>(),
                          out[1].mutable_data<std::int32_t>());
  });
}

void MaxPoolScatter::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::max_pool_scatter(problem_of(window, in[0]), in[0].data<T>(), in[1].data<std::int32_t>(), out[0].mutable_data<T>());
  });
}

void MaxPoolGather::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::max_pool_gather(problem_of(window, in[0]), in[0].data<T>(), in[1].data<std::int32_t>(), out[0].mutable_data<T>());
  });
}

void Matmul::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
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
  with_type(in[0], [&](auto zero) {
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
                   {.bias = in[2] ? in[2].data<T>() : nullptr, .slope = slope});
  });
}

void BiasActivation::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::bias_activation(rows_of(in[0]), in[0].dim(-1), in[0].data<T>(), in[1].data<T>(), slope, out[0].mutable_data<T>());
  });
}

void BiasActivationAdjoint::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::bias_activation_adjoint(rows_of(in[0]), in[0].dim(-1), in[0].data<T>(), in[1].data<T>(), slope, out[0].mutable_data<T>(),
                                 out[1].mutable_data<T>());
  });
}

void ChannelMoments::run(Cpu, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], per_sample);
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t g = 0; g < at.groups; ++g)
      cpu::channel_moments(at.rows, at.channels, in[0].data<T>() + g * at.rows * at.channels,
                           out[0].mutable_data<T>() + g * at.channels, out[1].mutable_data<T>() + g * at.channels);
  });
}

void ChannelAffine::run(Cpu, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[1].rank() == 2);
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t g = 0; g < at.groups; ++g) {
      const auto first = g * at.rows * at.channels, c = g * at.channels;
      cpu::channel_affine(at.rows, at.channels, in[0].data<T>() + first, in[1].data<T>() + c, in[2].data<T>() + c,
                          in[3].data<T>() + c, slope, out[0].mutable_data<T>() + first);
    }
  });
}

void ChannelDots::run(Cpu, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[2].rank() == 2);
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t g = 0; g < at.groups; ++g) {
      const auto first = g * at.rows * at.channels, c = g * at.channels;
      cpu::channel_dots(at.rows, at.channels, in[0].data<T>() + first, in[1].data<T>() + first, in[2].data<T>() + c,
                        out[0].mutable_data<T>() + c, out[1].mutable_data<T>() + c);
    }
  });
}

void NormAdjoint::run(Cpu, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[2].rank() == 2);
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t g = 0; g < at.groups; ++g) {
      const auto first = g * at.rows * at.channels, c = g * at.channels;
      const cpu::NormOfChannels<T> of{slope, in[2].data<T>() + c, in[3].data<T>() + c, in[4].data<T>() + c, in[5].data<T>() + c};
      cpu::norm_adjoint(at.rows, at.channels, in[0].data<T>() + first, in[1].data<T>() + first, of,
                        out[0].mutable_data<T>() + first, out[1].mutable_data<T>() + c, out[2].mutable_data<T>() + c);
    }
  });
}

void Softmax::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::softmax(rows_of(in[0]), in[0].dim(-1), in[0].data<T>(), out[0].mutable_data<T>());
  });
}

void LogSoftmax::run(Cpu, Inputs in, Outputs out) const {
  with_type(in[0], [&](auto zero) {
    using T = decltype(zero);
    cpu::log_softmax(rows_of(in[0]), in[0].dim(-1), in[0].data<T>(), out[0].mutable_data<T>());
  });
}

}  // namespace mpigrad::ops
