#pragma once
// GPU kernels for rows of channels: norms, and the cotangents of biases with activations.
// They use no tensors and no tapes; included inside ops only. T is any floating-point type of the library unless said otherwise;
// 16-bit types are computed in float32 and rounded once. All results are the same in every run: sums have a fixed order and
// nothing is added atomically.

#include <cstdint>

#include "ops/elementwise/activation_functions.h"
#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

// x: [groups, rows, channels], per-channel values: [groups, channels]; sums in double. S, the type of per-channel values, is the
// type that T is computed in: float for 16-bit types, else T. At most 65,535 groups.

// Upper limit of the number of blocks of rows with sums of their own, stored one after the other in the scratch memory of the
// functions below.
std::int64_t channel_blocks(std::int64_t rows, std::int64_t channels);
inline std::int64_t channel_scratch(std::int64_t groups, std::int64_t rows, std::int64_t channels) {
  return groups * channel_blocks(rows, channels) * 2 * channels;
}
// mean[c] and m2[c] = sum (x - mean)^2; blocks are combined by Chan's formula.
template <class T, class S>
void channel_moments(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* x, double* scratch, S* mean, S* m2,
                     Stream stream);
// y = fused((x - m) * a + b) per channel
template <class T, class S>
void channel_affine(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* x, const S* m, const S* a, const S* b,
                    scalar::Fused fused, T* y, Stream stream);
// h = y <= 0 ? factor * g : g (may be in g's memory), and sums[c] = sum h; one group only
template <class T>
void bias_activation_adjoint(std::int64_t rows, std::int64_t channels, const T* g, const T* y, scalar::Fused fused,
                             double* scratch, T* h, T* sums, Stream stream);
// sums[c] = sum g, dots[c] = sum g * (x - m)
template <class T, class S>
void channel_dots(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* g, const T* x, const S* m,
                  double* scratch, S* sums, S* dots, Stream stream);

// The adjoint of fused(z), z = (x - m) a + b with a = gamma inverse, inverse = (variance + epsilon)^-1/2 from the statistics of x
// itself: h = z <= 0 ? factor g : g, sums[c] = sum h, dots[c] = sum h (x - m), and gx = a (h - sums / rows - (x - m) inverse^2
// dots / rows), which may be in g's memory.
template <class S>
struct NormOfChannels {
  scalar::FusedOf<S> fused{};
  const S *m = nullptr, *a = nullptr, *b = nullptr, *inverse = nullptr;
};
inline std::int64_t norm_scratch(std::int64_t groups, std::int64_t rows, std::int64_t channels) {
  return channel_scratch(groups, rows, channels) + 2 * groups * channels;
}
template <class T, class S>
void norm_adjoint(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* g, const T* x,
                  const NormOfChannels<S>& norm, double* scratch, T* gx, S* sums, S* dots, Stream stream);

}  // namespace mpigrad::cuda
