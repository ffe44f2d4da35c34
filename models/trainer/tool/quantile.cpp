#include "models/trainer/tool/quantile.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"

namespace mpigrad::tool {

double quantile(std::vector<double> values, double q) {
  require(q >= 0 && q <= 1, "[quantile] a fraction in [0, 1] is needed, got {}", q);
  if (values.empty() || std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); })) return std::nan("");
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const double part = place - static_cast<double>(below);
  // There is no linear interpolation between infinite neighbours.
  if (part == 0 || values[below + 1] == values[below]) return values[below];
  return values[below] * (1 - part) + values[below + 1] * part;
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace mpigrad::tool
