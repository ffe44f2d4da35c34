#pragma once
// The elementwise steps of reductions, for transports that compute them. Used inside comm only.

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <type_traits>

#include "comm/transport/transport.h"

namespace mpigrad {

// For integers; check_reduction() has refused other types before.
template <class T, class F>
void combine_bits(T* __restrict a, const T* __restrict b, std::int64_t count, const F& f) {
  if constexpr (std::is_integral_v<T>)
    for (std::int64_t i = 0; i < count; ++i) a[i] = static_cast<T>(f(a[i], b[i]));
  else std::abort();
}

// a[i] = op(a[i], b[i]); a NaN in either operand of max and min stays. 16-bit types: computed in float32 and rounded.
template <class T>
void combine(T* __restrict a, const T* __restrict b, std::int64_t count, CombineOp op) {
  const auto replaces = [](T x, T y, bool larger) {
    if constexpr (!std::is_integral_v<T>) {
      if (y != y) return true;
    }
    return larger ? y > x : y < x;
  };
  switch (op) {
    case CombineOp::sum:
      for (std::int64_t i = 0; i < count; ++i) a[i] = static_cast<T>(a[i] + b[i]);
      return;
    case CombineOp::prod:
      for (std::int64_t i = 0; i < count; ++i) a[i] = static_cast<T>(a[i] * b[i]);
      return;
    case CombineOp::max:
      for (std::int64_t i = 0; i < count; ++i) a[i] = replaces(a[i], b[i], true) ? b[i] : a[i];
      return;
    case CombineOp::min:
      for (std::int64_t i = 0; i < count; ++i) a[i] = replaces(a[i], b[i], false) ? b[i] : a[i];
      return;
    case CombineOp::band: return combine_bits(a, b, count, std::bit_and<>());
    case CombineOp::bor: return combine_bits(a, b, count, std::bit_or<>());
    case CombineOp::bxor: return combine_bits(a, b, count, std::bit_xor<>());
  }
}

}  // namespace mpigrad
