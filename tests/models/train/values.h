#pragma once
// Elements of tensors in one list, and the distance of two lists.

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

// The largest distance; infinite if a number is NaN, or if the lists are empty or differ in length.
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
