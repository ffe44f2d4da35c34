// Interpolation by cubic B-splines.

#include <cmath>

#include "models/data/augment/geometry.h"

namespace mpigrad::augment {
namespace {

// Cells that are added at both ends with the value of the last cell. The filter below forgets a cell by a factor of 0.27 each.
constexpr std::int64_t around = 12;

// Replaces values by the coefficients of the cubic B-spline through them, mirrored at both ends (Unser 1999, box 2).
void to_coefficients(std::vector<double>& c) {
  const double z = std::sqrt(3.0) - 2;
  const auto n = c.size();
  double first = c[0], power = z;
  for (std::size_t i = 1; i < n; ++i, power *= z) first += power * c[i];  // the mirrored rest is below 1e-7
  c[0] = first;
  for (std::size_t i = 1; i < n; ++i) c[i] += z * c[i - 1];
  c[n - 1] = z / (z * z - 1) * (c[n - 1] + z * c[n - 2]);
  for (std::size_t i = n - 1; i-- > 0;) c[i] = z * (c[i + 1] - c[i]);
  for (double& value : c) value *= 6;
}

}  // namespace

template <class T>
BasicSample<T> splined(const BasicSample<T>& x, int axis, double begin, double end, std::int64_t to) {
  const auto n = x.extents[axis], outer = x.extents.elements(0, axis), inner = x.extents.elements(axis + 1, 3) * x.channels;
  Shape extents = x.extents;
  extents[axis] = to;
  BasicSample<T> y(extents, x.channels);
  const double step = (end - begin) / static_cast<double>(to);
#pragma omp parallel if (x.extents.elements() > (1 << 12))
  {
    std::vector<double> line(static_cast<std::size_t>(n + 2 * around));
#pragma omp for collapse(2) schedule(static)
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t j = 0; j < inner; ++j) {
        for (std::int64_t i = 0; i < n + 2 * around; ++i) {
          const auto cell = std::clamp<std::int64_t>(i - around, 0, n - 1);
          line[static_cast<std::size_t>(i)] = static_cast<double>(x.values[static_cast<std::size_t>((o * n + cell) * inner + j)]);
        }
        to_coefficients(line);
        for (std::int64_t i = 0; i < to; ++i) {
          const double at = begin + (static_cast<double>(i) + 0.5) * step - 0.5, low = std::floor(at), t = at - low, s = 1 - t;
          const auto* c = line.data() + static_cast<std::int64_t>(low) + around - 1;
          const double value = (s * s * s * c[0] + (4 - 6 * t * t + 3 * t * t * t) * c[1] +
                                (4 - 6 * s * s + 3 * s * s * s) * c[2] + t * t * t * c[3]) /
                               6;
          y.values[static_cast<std::size_t>((o * to + i) * inner + j)] = static_cast<T>(value);
        }
      }
  }
  return y;
}
template BasicSample<float> splined(const BasicSample<float>&, int, double, double, std::int64_t);
template BasicSample<double> splined(const BasicSample<double>&, int, double, double, std::int64_t);

}  // namespace mpigrad::augment
