#pragma once
// Random windows, pools and norms from a seed: what plain loops in float64 give by definition, against the ops in float64 and
// float32 on one rank and on process grids of any cuts. Half of the cases are small integers, of which float32 holds every sum
// exactly, so that nothing may differ; the others are real numbers, and rounding has a bound for each element.

#include <functional>
#include <string>

#include "tests/support/distributed.h"

namespace mpigrad::testing {

// What a function of tensors and its gradients are, in float64. `*_scale` bound rounding, in units of epsilon: the same sums
// over magnitudes, or 0 where nothing is rounded.
struct Truth {
  Tensor value, value_scale;
  Tensor cotangent;  // of the value; 0 beside kinks, on whose other side a rounded number may lie
  Tensors gradients, gradient_scales;
};

struct ComparisonCase {
  std::string name;  // all attributes
  Tensors inputs;    // float64 of which float32 holds every digit; the first is cut on grids, the others are parameters
  std::function<Tensor(const Tensors&)> run;
  // On a grid statistics may depend on the cuts; none is one rank.
  std::function<Truth(const LayoutPtr&)> truth;
};

// A case is all of its seed, so that changing the order of draws changes what kept seeds stand for.
ComparisonCase window_comparison(std::uint64_t seed);  // convolutions, plain and transposed
ComparisonCase pool_comparison(std::uint64_t seed);
ComparisonCase norm_comparison(std::uint64_t seed);

// Runs case `seed` on one rank and on a grid that the seed chooses; fails the surrounding test with a line that names the case.
void run_comparison(const std::string& kind, const std::function<ComparisonCase(std::uint64_t)>& make, std::uint64_t seed);

// ---- pieces of cases

// Small integers, or floats in [-1, 1).
std::vector<double> fuzz_numbers(std::int64_t count, const Philox& random, bool integers);
std::vector<double> magnitudes(std::vector<double> values);
// slope for what is not positive
inline double leaky(double x, double slope) { return x > 0 ? x : slope == 0 ? 0 : slope * x; }

}  // namespace mpigrad::testing
