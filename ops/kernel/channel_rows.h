#pragma once
// Rows of channels on the CPU as functions of shapes and pointers: norms, and biases with activations.
// They use no tensors and no tapes. Included inside ops, by kernel tests and by benchmarks only.

#include <cstdint>

#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

// x is [rows, channels], channels last; sums accumulate in double.
// mean[c] and m2[c] = sum (x - mean)^2, in two passes over cache-sized chunks combined by Chan's formula.
template <class T>
void channel_moments(std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* m2);
// y = fused((x - m) * a + b) per channel
template <class T>
void channel_affine(std::int64_t rows, std::int64_t channels, const T* x, const T* m, const T* a, const T* b, scalar::Fused fused,
                    T* y);
// y = fused(x + bias);  inner = y <= 0 ? factor * g : g (may be in g's memory), and sums[c] = sum inner
template <class T>
void bias_activation(std::int64_t rows, std::int64_t channels, const T* x, const T* bias, scalar::Fused fused, T* y);
template <class T>
void bias_activation_adjoint(std::int64_t rows, std::int64_t channels, const T* g, const T* y, scalar::Fused fused, T* inner,
                             T* sums);
// sums[c] = sum g, dots[c] = sum g * (x - m)
template <class T>
void channel_dots(std::int64_t rows, std::int64_t channels, const T* g, const T* x, const T* m, T* sums, T* dots);
// See ops/norm/channel_norm.h.
template <class T>
struct NormOfChannels {
  scalar::Fused fused{};
  const T *m = nullptr, *a = nullptr, *b = nullptr, *inverse = nullptr;
};
template <class T>
void norm_adjoint(std::int64_t rows, std::int64_t channels, const T* g, const T* x, const NormOfChannels<T>& of, T* gx, T* sums,
                  T* dots);

}  // namespace mpigrad::cpu
