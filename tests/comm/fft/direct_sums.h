#pragma once
// Fourier transforms as direct sums, and random problems.

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "framework/base/joined.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/views.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

namespace mpigrad::testing {

// The sum over the axes of z exp(sign 2 pi i k n / M), in float64, O(n^2) for each axis.
inline Tensor direct_sum(const Tensor& z, const std::vector<int>& axes, int sign) {
  auto values = z.to_vector();
  for (const int axis : axes) {
    const auto& shape = z.shape();
    const int d = axis < 0 ? axis + z.rank() : axis;
    const auto outer = shape.elements(0, d), n = shape[d], inner = shape.elements(d + 1, shape.rank());
    const auto before = values;
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t i = 0; i < inner; ++i) {
          std::complex<double> sum = 0;
          for (std::int64_t j = 0; j < n; ++j) {
            const auto at = static_cast<std::size_t>(2 * ((o * n + j) * inner + i));
            sum += std::complex<double>(before[at], before[at + 1]) *
                   std::polar(1.0, sign * 2 * std::numbers::pi * static_cast<double>(j * k % n) / static_cast<double>(n));
          }
          const auto at = static_cast<std::size_t>(2 * ((o * n + k) * inner + i));
          values[at] = sum.real(), values[at + 1] = sum.imag();
        }
  }
  return from_vector(z.shape(), values, DType::complex128);
}

// The first half of dimension `axis`, as rfft keeps it.
inline Tensor half_of(const Tensor& z, int axis) { return slice(z, axis, 0, z.dim(axis) / 2 + 1); }

// A tensor [N, D, H, W, C] of any extents, 1 and primes among them, and the dimensions to transform.
struct FourierProblem {
  Shape shape;
  std::vector<int> axes;
  DType dtype = DType::float64;

  Tensor real(int seed, const LayoutPtr& layout = {}) const {
    return random_uniform(shape, {.key = static_cast<std::uint64_t>(seed)}, -1, 1, dtype, layout);
  }
  Tensor complex(int seed, const LayoutPtr& layout = {}) const {
    return random_uniform(shape, {.key = static_cast<std::uint64_t>(seed)}, -1, 1, complex_type(dtype), layout);
  }
  double points() const {
    double result = 1;
    for (const int d : axes) result *= static_cast<double>(shape[d]);
    return result;
  }
  std::string text() const { return fmt::format("{} {} along ({})", name_of(dtype), shape, joined(axes, ", ")); }
};

inline FourierProblem random_problem(Dice& dice, int trial) {
  FourierProblem problem;
  problem.shape = {dice(1, 2), dice(1, 9), dice(1, 7), dice(1, 11), trial % 3 == 0 ? dice(17, 19) : dice(1, 3)};
  std::vector<int> spatial{1, 2, 3};
  for (int i = 2; i > 0; --i) std::swap(spatial[static_cast<std::size_t>(i)], spatial[static_cast<std::size_t>(dice(0, i))]);
  spatial.resize(static_cast<std::size_t>(dice(1, 3)));
  problem.axes = trial % 2 == 0 && spatial.size() == 3 ? std::vector{1, 2, 3} : spatial;
  problem.dtype = trial % 5 == 4 ? DType::float32 : DType::float64;
  return problem;
}

}  // namespace mpigrad::testing
