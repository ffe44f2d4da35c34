// Random windows, pools and norms against plain loops in float64, on one rank and on grids. MPIGRAD_COMPARISON_SEED=N runs only
// case N of the tests that -tc selects. MPIGRAD_TEST_ALL adds new cases; their first seed is printed.

#include "tests/ops/comparison/comparison_fuzz.h"
#include "tests/support/all_tests.h"

#include <cstdlib>
#include <random>

#include "tests/support/progress.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Seeds that have failed before.
const std::vector<std::pair<std::string, std::uint64_t>> kept{
    // gradients of weights by oneDNN 2.6 with AVX-512, deep kernels over both ends of the depth
    {"windows", 803558188513},
    {"windows", 803558191434},
    {"windows", 803558194525},
    {"windows", 803558195151}};

void run_comparisons(const std::string& kind, std::uint64_t count, ComparisonCase (*make)(std::uint64_t)) {
  if (const char* asked = std::getenv("MPIGRAD_COMPARISON_SEED"); asked != nullptr && *asked != 0)
    return run_comparison(kind, make, std::strtoull(asked, nullptr, 10));
  for (const auto& [of, seed] : kept)
    if (of == kind) run_comparison(kind, make, seed);
  for (std::uint64_t seed = 0; seed < count; ++seed) run_comparison(kind, make, seed);
  if (!all_tests()) return;
  const std::uint64_t first = std::uint64_t{std::random_device{}()} << 8;
  fmt::print("comparison: {} from seed {}\n", kind, first);
  for (std::uint64_t seed = first; seed < first + 10 * count; ++seed) {
    if (seed % 500 == 0) note_progress(fmt::format("comparison: {}, seed {}", kind, seed));
    run_comparison(kind, make, seed);
  }
}

}  // namespace

TEST_CASE("comparison: windows are what plain loops give, in float32 and on grids") {
  run_comparisons("windows", 1500, window_comparison);
}
TEST_CASE("comparison: pools are what plain loops give, in float32 and on grids") {
  run_comparisons("pools", 900, pool_comparison);
}
TEST_CASE("comparison: norms are what plain loops give, in float32 and on grids") {
  run_comparisons("norms", 600, norm_comparison);
}
