#pragma once
// Comparison of results with those of the plain kernels; also used by programs that are not tests.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace mpigrad::testing {

// max |a - b| / max |b|; infinite if only one of a and b is NaN, or if they are different infinities.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return infinity;
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(b[i])) largest = std::max(largest, std::abs(b[i]));
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double error = std::abs(a[i] - b[i]);
    worst = std::isfinite(error) ? std::max(worst, error) : infinity;
  }
  return largest > 0 ? worst / largest : worst;
}

}  // namespace mpigrad::testing
