#pragma once
// Pools on the CPU as functions of shapes and pointers, of [N, D, H, W, C], row-major.
// They use no tensors and no tapes. Included inside ops, by kernel tests and by benchmarks only.
//
// Namespace `reference` has plain loops for float and double, which define the correct results. Functions outside it call a
// library where that is faster, and must agree with them. All but signed_avg_pool() also take bfloat16 and float16, which are
// added up in float and rounded once.

#include <cstdint>

#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

// Average pooling that always divides by the kernel's volume (padding counts as zeros); ops multiply by a constant for other
// divisors. gx is its transpose.
template <class T>
void avg_pool_forward(const PoolProblem&, const T* x, T* y);
template <class T>
void avg_pool_adjoint(const PoolProblem&, const T* gy, T* gx);
// Average pooling of f(x), with f the fused activation, and signs: [batch, in, ceil(channels / 8)], bit c % 8 of byte c / 8 is
// set if !(x <= 0). Given these, the transpose: gx = f'(x) * (adjoint of the average), and y = average of f'(x) * h.
template <class T>
void leaky_avg_pool(const PoolProblem&, scalar::Fused fused, const T* x, T* y, std::uint8_t* signs);
template <class T>
void leaky_avg_pool_adjoint(const PoolProblem&, scalar::Fused fused, const T* gy, const std::uint8_t* signs, T* gx);
template <class T>
void signed_avg_pool(const PoolProblem&, scalar::Fused fused, const T* h, const std::uint8_t* signs, T* y);
// Maximum over the window (padding never wins) and `winner`, the position of the maximum in the window, kernel-row-major (the
// first one on ties); NaN wins. A window wholly in padding gives -infinity and winner -1.
template <class T>
void max_pool_forward(const PoolProblem&, const T* x, T* y, std::int32_t* winner);
// gx[position of winner] += gy, and the transpose: y[o] = x[position of winner] (0 where winner is -1).
template <class T>
void max_pool_scatter(const PoolProblem&, const T* gy, const std::int32_t* winner, T* gx);
template <class T>
void max_pool_gather(const PoolProblem&, const T* x, const std::int32_t* winner, T* y);

namespace reference {
template <class T>
void avg_pool_forward(const PoolProblem&, const T* x, T* y);
template <class T>
void avg_pool_adjoint(const PoolProblem&, const T* gy, T* gx);
}  // namespace reference

}  // namespace mpigrad::cpu
