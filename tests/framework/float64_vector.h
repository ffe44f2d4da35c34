#pragma once
// Vectors of float64 for tests of tapes.

#include <cstdint>
#include <initializer_list>

#include "framework/tensor/tensor.h"

namespace mpigrad::testing {

inline constexpr auto f64 = DType::float64;

inline Tensor vector64(std::initializer_list<double> values) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values, f64);
}

}  // namespace mpigrad::testing
