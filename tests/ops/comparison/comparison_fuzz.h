#pragma once
// Random windows, pools and norms from a seed: plain loops in float64 by definition, against the ops in float64 and float32 on
// one rank and on process grids with any cuts. Half of the cases are small integers, for which float32 holds every sum exactly,
// so the results must be equal; the others are real numbers, with a bound on the rounding of each element.

#include <functional>
#include <string>

#include "tests/support/distributed.h"

namespace mpigrad::testing {

// Values of a function of tensors and its gradients, in float64. `*_scale` bound the rounding, in units of epsilon: the same sums
// over magnitudes, or 0 where nothing is rounded.
struct Truth {
  Tensor value, value_scale;
  Tensor cotangent;  // of the value; 0 near kinks, where a rounded number may lie on the other side
  Tensors gradients, gradient_scales;
};

struct ComparisonCase {
  std::string name;  // all attributes
  Tensors inputs;    // float64 values that float32 represents; the first is split on grids, the others are parameters
  std::function<Tensor(const Tensors&)> run;
  // On a grid statistics may depend on the cuts; no layout means one rank.
  std::function<Truth(const LayoutPtr&)> truth;
};

// The seed determines a case, so changing the order of draws changes the cases of recorded seeds.
ComparisonCase window_comparison(std::uint64_t seed);  // convolutions, plain and transposed
ComparisonCase pool_comparison(std::uint64_t seed);
ComparisonCase norm_comparison(std::uint64_t seed);

// Runs case `seed` on one rank and on a grid chosen by the seed; a failure fails the surrounding test with a line that names the
// case.
void run_comparison(const std::string& kind, const std::function<ComparisonCase(std::uint64_t)>& make, std::uint64_t seed);

// ---- pieces of cases

// Small integers, or floats in [-1, 1).
std::vector<double> fuzz_numbers(std::int64_t count, const Philox& random, bool integers);
std::vector<double> magnitudes(std::vector<double> values);
// Leaky ReLU with this slope for x <= 0.
inline double leaky(double x, double slope) { return x > 0 ? x : slope == 0 ? 0 : slope * x; }

}  // namespace mpigrad::testing
