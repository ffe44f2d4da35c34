#pragma once
// The two 16-bit types, and comparison of numbers and tensors.

#include <cmath>
#include <cstddef>
#include <limits>

#include "framework/tensor/tensor.h"

namespace mpigrad::testing {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr DType half_types[] = {DType::bfloat16, DType::float16};

// Equal, the sign of zero included, or both NaN.
inline bool same(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b); }

inline bool same(const Tensor& a, const Tensor& b) {
  if (a.type() != b.type()) return false;
  const auto x = a.to_vector(), y = b.to_vector();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!same(x[i], y[i])) return false;
  return true;
}

}  // namespace mpigrad::testing
