#pragma once
// Numbers of tensors in one list, and how far two lists are apart.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad::testing {

using Values = std::vector<double>;

inline void append(Values& values, const Tensor& x) {
  const auto more = x.to_vector();
  values.insert(values.end(), more.begin(), more.end());
}

// The largest distance; infinite where a number is none, and where the lists are empty or of two lengths.
inline double difference(const Values& a, const Values& b) {
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(a[i] - b[i]);
    largest = std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(largest, distance);
  }
  return largest;
}

}  // namespace mpigrad::testing
