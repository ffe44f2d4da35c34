// Statistics and normalisation per channel on GPUs: calls the kernels on tensors.

#include "ops/kernel/absent.h"
#include "ops/norm/channel_norm.h"

#ifdef MPIGRAD_HAS_KERNELS
#include <algorithm>
#include <type_traits>

#include "ops/kernel/channel_rows_cuda.h"
#include "ops/kernel/gpu_tensors.h"

namespace mpigrad::ops {

namespace {

// Calls f(T(), groups, element of x, channel) for x's type and parts of the groups that fit into one launch.
template <class F>
void for_parts(const Tensor& x, const ChannelRows& at, const F& f) {
  constexpr std::int64_t most = 65535;
  visit_any_floating(x.dtype(), [&](auto zero) {
    for (std::int64_t first = 0; first < at.groups; first += most)
      f(zero, std::min(most, at.groups - first), first * at.rows * at.channels, first * at.channels);
  });
}

// The type of per-channel values for T.
template <class T>
using PerChannel = std::conditional_t<is_half(dtype_of<T>()), float, T>;

}  // namespace

void ChannelMoments::run(Cuda, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], per_sample);
  Tensor work = scratch(cuda::channel_scratch(at.groups, at.rows, at.channels), DType::float64);
  for_parts(in[0], at, [&](auto zero, std::int64_t count, std::int64_t x, std::int64_t c) {
    using T = decltype(zero);
    using S = PerChannel<T>;
    cuda::channel_moments(count, at.rows, at.channels, read<T>(in[0]) + x, written<double>(work), written<S>(out[0]) + c,
                          written<S>(out[1]) + c, cuda::compute_stream());
  });
}

void ChannelAffine::run(Cuda, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[1].rank() == 2);
  for_parts(in[0], at, [&](auto zero, std::int64_t count, std::int64_t x, std::int64_t c) {
    using T = decltype(zero);
    using S = PerChannel<T>;
    cuda::channel_affine(count, at.rows, at.channels, read<T>(in[0]) + x, read<S>(in[1]) + c, read<S>(in[2]) + c,
                         read<S>(in[3]) + c, fused, written<T>(out[0]) + x, cuda::compute_stream());
  });
}

void ChannelDots::run(Cuda, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[2].rank() == 2);
  Tensor work = scratch(cuda::channel_scratch(at.groups, at.rows, at.channels), DType::float64);
  for_parts(in[0], at, [&](auto zero, std::int64_t count, std::int64_t x, std::int64_t c) {
    using T = decltype(zero);
    using S = PerChannel<T>;
    cuda::channel_dots(count, at.rows, at.channels, read<T>(in[0]) + x, read<T>(in[1]) + x, read<S>(in[2]) + c,
                       written<double>(work), written<S>(out[0]) + c, written<S>(out[1]) + c, cuda::compute_stream());
  });
}

void NormAdjoint::run(Cuda, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[2].rank() == 2);
  Tensor work = scratch(cuda::norm_scratch(at.groups, at.rows, at.channels), DType::float64);
  for_parts(in[0], at, [&](auto zero, std::int64_t count, std::int64_t x, std::int64_t c) {
    using T = decltype(zero);
    using S = PerChannel<T>;
    const cuda::NormOfChannels<S> norm{fused.as<S>(), read<S>(in[2]) + c, read<S>(in[3]) + c, read<S>(in[4]) + c,
                                       read<S>(in[5]) + c};
    cuda::norm_adjoint(count, at.rows, at.channels, read<T>(in[0]) + x, read<T>(in[1]) + x, norm, written<double>(work),
                       written<T>(out[0]) + x, written<S>(out[1]) + c, written<S>(out[2]) + c, cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(ChannelMoments)
MPIGRAD_ABSENT(ChannelAffine)
MPIGRAD_ABSENT(ChannelDots)
MPIGRAD_ABSENT(NormAdjoint)

}  // namespace mpigrad::ops
#endif
