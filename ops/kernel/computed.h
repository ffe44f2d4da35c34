#pragma once
// 16-bit elements in kernels of the CPU: the type in which they are computed, and their rounding.

#include <cstdint>
#include <type_traits>

#include "framework/tensor/half.h"

namespace mpigrad::cpu {

// The type in which kernels compute with elements of type E: float for bfloat16 and float16.
template <class E>
using Computed = std::conditional_t<sizeof(E) == 2, float, E>;

// Stores x, rounded once. As bits: loops that construct an object for each element do not vectorise under "omp simd".
template <class T>
inline void store(T* to, T x) {
  *to = x;
}
inline void store(BFloat16* to, float x) { *reinterpret_cast<std::uint16_t*>(to) = detail::BFloat16Format::encode(x); }
inline void store(Float16* to, float x) { *reinterpret_cast<std::uint16_t*>(to) = detail::Float16Format::encode(x); }

}  // namespace mpigrad::cpu
