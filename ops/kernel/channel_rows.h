#pragma once
// Rows of channels on the CPU as functions of shapes and pointers: norms, and biases with activations.
// They use no tensors and no tapes. Included inside ops, by kernel tests and by benchmarks only.

#include <cstdint>

#include "ops/kernel/computed.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

// x is [rows, channels], channels last; sums accumulate in double.
// mean[c] and m2[c] = sum (x - mean)^2, in two passes over cache-sized chunks combined by Chan's formula.
template <class E>
void channel_moments(std::int64_t rows, std::int64_t channels, const E* x, Computed<E>* mean, Computed<E>* m2);
// y = fused((x - m) * a + b) per channel
template <class E>
void channel_affine(std::int64_t rows, std::int64_t channels, const E* x, const Computed<E>* m, const Computed<E>* a,
                    const Computed<E>* b, scalar::Fused fused, E* y);
// y = fused(x + bias);  inner = y <= 0 ? factor * g : g (may be in g's memory), and sums[c] = sum inner
template <class E>
void bias_activation(std::int64_t rows, std::int64_t channels, const E* x, const E* bias, scalar::Fused fused, E* y);
template <class E>
void bias_activation_adjoint(std::int64_t rows, std::int64_t channels, const E* g, const E* y, scalar::Fused fused, E* inner,
                             E* sums);
// sums[c] = sum g, dots[c] = sum g * (x - m)
template <class E>
void channel_dots(std::int64_t rows, std::int64_t channels, const E* g, const E* x, const Computed<E>* m, Computed<E>* sums,
                  Computed<E>* dots);
// See ops/norm/channel_norm.h.
template <class T>
struct NormOfChannels {
  scalar::Fused fused{};
  const T *m = nullptr, *a = nullptr, *b = nullptr, *inverse = nullptr;
};
template <class E>
void norm_adjoint(std::int64_t rows, std::int64_t channels, const E* g, const E* x, const NormOfChannels<Computed<E>>& of, E* gx,
                  Computed<E>* sums, Computed<E>* dots);

}  // namespace mpigrad::cpu
