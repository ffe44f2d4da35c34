// CosmoFlow: exact parameter counts, and the same training run on every grid.

#include "models/networks/cosmoflow.h"

#include <doctest/doctest.h>

#include <array>

#include "ops/random/random.h"
#include "ops/views/views.h"
#include "tests/models/networks/network_training.h"
#include "tests/support/all_tests.h"
#include "tests/support/errors.h"
#include "tests/support/progress.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

std::int64_t parameter_count(const CosmoFlowOptions& options, std::int64_t extent) {
  CosmoFlow net(options);
  net.build(Shape{1, extent, extent, extent, 4}, {.device = DeviceKind::dry});
  return net.parameters().elements();
}

// All grids of 2, 3, 4, 6 and 8 ranks and one of 18; or a selection.
std::vector<GridExtents> grids(bool all) {
  std::vector<GridExtents> list{{1, 3, 3, 2}};
  if (!all) {
    for (const auto& e : {std::array{2, 1, 1, 1},
                          {1, 2, 1, 1},
                          {1, 1, 2, 1},
                          {1, 1, 1, 2},
                          {3, 1, 1, 1},
                          {1, 2, 2, 1},
                          {1, 3, 2, 1},
                          {2, 3, 1, 1},
                          {1, 1, 2, 3},
                          {1, 2, 2, 2},
                          {8, 1, 1, 1},
                          {2, 1, 2, 2},
                          {1, 1, 1, 8}})
      list.push_back({e[0], e[1], e[2], e[3]});
    return list;
  }
  for (const int ranks : {2, 3, 4, 6, 8})
    for (int sample = 1; sample <= ranks; ++sample)
      for (int depth = 1; depth <= ranks; ++depth)
        for (int height = 1; height <= ranks; ++height)
          for (int width = 1; width <= ranks; ++width)
            if (sample * depth * height * width == ranks) list.push_back({sample, depth, height, width});
  return list;
}

// The full network in long tests; otherwise fewer filters in the same layers.
CosmoFlowOptions hybrid() { return {.batch_norm = true, .filters = all_tests() ? 16 : 2}; }

void check_grids(const CosmoFlowRun& run, const std::vector<GridExtents>& list) {
  const auto one = losses_on_threads(run, {});
  CHECK(one.back() < one.front());
  for (const auto& g : list) {
    CAPTURE(g.sample);
    CAPTURE(g.depth);
    CAPTURE(g.height);
    CAPTURE(g.width);
    note_progress("CosmoFlow on another grid");
    CHECK(largest_difference(losses_on_threads(run, g), one) < 1e-10);
  }
}

}  // namespace

TEST_CASE("CosmoFlow has exactly the published numbers of parameters") {
  for (const std::int64_t extent : {16, 32, 64, 128, 256, 512}) CHECK(parameter_count({}, extent) == 9437636);
  CHECK(parameter_count({.batch_norm = true}, 128) == 9439652);
  CHECK(parameter_count({.variant = CosmoFlowVariant::mlperf}, 128) == 8907556);
}

TEST_CASE("CosmoFlow, pyramid: the numbers of parameters, by scales") {
  const CosmoFlowOptions pyramid{.variant = CosmoFlowVariant::pyramid};
  // For each scale 16 filters of 2 x 27 weights with a bias; for each feature two numbers of the norm and four weights.
  CHECK(parameter_count(pyramid, 16) == 3 * 16 * 55 + 192 * 6 + 4);
  CHECK(parameter_count(pyramid, 64) == 5 * 16 * 55 + 320 * 6 + 4);
}

TEST_CASE("CosmoFlow, pyramid: a shift by W / 4 of a periodic volume changes nothing") {
  CosmoFlow net({.variant = CosmoFlowVariant::pyramid});
  const auto x = random_uniform({2, 16, 16, 16, 4}, Philox{.key = 3}, 0, 2, DType::float64);
  net.build(x.shape(), {.seed = 1, .dtype = DType::float64});
  Tensor y = x;
  for (const int axis : {1, 2, 3}) y = concatenate({slice(y, axis, 12, 16), slice(y, axis, 0, 12)}, axis);
  const auto a = net.features(x).to_vector(), b = net.features(y).to_vector();
  REQUIRE(a.size() == 2 * 192);
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(b[i] == doctest::Approx(a[i]).epsilon(1e-12));
}

TEST_CASE("CosmoFlow, hybrid: 12 steps are the same on every grid") { check_grids({.options = hybrid()}, grids(all_tests())); }

TEST_CASE("CosmoFlow, hybrid with circular padding: 12 steps are the same on mixed grids") {
  auto options = hybrid();
  options.padding_mode = PaddingMode::circular;
  check_grids({.options = options}, {{1, 3, 1, 2}, {2, 2, 2, 1}});
  CHECK(error_text([] { CosmoFlow({.variant = CosmoFlowVariant::pyramid, .padding_mode = PaddingMode::reflect}); }) ==
        "[cosmoflow] the variant pyramid has circular padding, not reflect");
}

TEST_CASE("CosmoFlow, MLPerf: 12 steps are the same on mixed grids") {
  CosmoFlowRun run{.options = {.variant = CosmoFlowVariant::mlperf, .filters = 2}, .extent = 32};
  if (all_tests()) return check_grids(run, grids(true));
  check_grids(run, {{1, 3, 1, 2}, {2, 2, 2, 1}});
}

TEST_CASE("CosmoFlow, pyramid: 12 steps are the same on mixed grids") {
  const CosmoFlowRun run{.options = {.variant = CosmoFlowVariant::pyramid, .filters = 2}};
  check_grids(run, {{1, 3, 1, 2}, {2, 2, 2, 1}, {4, 1, 1, 2}, {1, 1, 5, 1}});
}
