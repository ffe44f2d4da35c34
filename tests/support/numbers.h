#pragma once
// Random numbers that an element type represents exactly.

#include <cstdint>
#include <vector>

#include "framework/tensor/random.h"
#include "framework/tensor/tensor.h"

namespace mpigrad::testing {

// Small integers for integer types, otherwise uniform numbers in [-2, 2).
inline std::vector<double> numbers(const Shape& shape, DType type, std::uint64_t seed) {
  const Philox random{.key = seed, .stream = 77};
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_floating(type)) values[i] = 4 * random.uniform(i) - 2;
    else values[i] = static_cast<double>(random.below(i, type == DType::boolean ? 2 : 100));
  }
  return from_vector(shape, values, type).to_vector();
}

}  // namespace mpigrad::testing
