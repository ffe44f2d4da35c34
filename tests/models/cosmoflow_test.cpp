// CosmoFlow: exact parameter counts, and the same training run on every grid.

#include "models/networks/cosmoflow.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <mutex>

#include "comm/collectives.h"
#include "framework/optim/optimizer.h"
#include "models/train/session.h"
#include "ops/loss.h"
#include "ops/random.h"
#include "tests/support/progress.h"

using namespace mpigrad;

namespace {

std::int64_t parameter_count(const CosmoFlowOptions& options, std::int64_t extent) {
  CosmoFlow net(options);
  net.build(Shape{1, extent, extent, extent, 4}, {.device = DeviceKind::dry});
  return net.parameters().elements();
}

struct Run {
  CosmoFlowOptions options;
  std::int64_t extent = 16, batch = 8;
  int steps = 20;
};

// Losses of all steps on a grid; float64, the same data whatever the grid.
std::vector<double> train(const Run& run, const GridExtents& extents) {
  std::vector<double> losses;
  run_threads(extents.sample * extents.depth * extents.height * extents.width, [&](std::shared_ptr<Transport> transport) {
    Session session(transport);
    const auto grid = session.grid(extents);
    const auto layout = activation_layout(grid, {run.batch, run.extent, run.extent, run.extent, 4});
    const auto target_layout = split_layout(grid, {run.batch, 4}, {0, -1, -1, -1});
    CosmoFlow net(run.options);
    net.build(layout, {.seed = 1, .dtype = DType::float64});
    Adam adam(net, {.learning_rate = 1e-3});
    for (int step = 0; step < run.steps; ++step) {
      net.set_step(step);
      const Philox random{7, static_cast<std::uint64_t>(step % 4)};
      const auto x = constant(random_normal(layout->global, random, 0, 1, DType::float64, layout));
      const auto y = constant(random_uniform(target_layout->global, random.child(1), -1, 1, DType::float64, target_layout));
      Tape tape(net);
      const auto share = mse(net(x), y);
      adam.step(tape.gradient(share));
      const double loss = total(share, session.world());
      if (session.rank() == 0) losses.push_back(loss);
    }
  });
  return losses;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return largest;
}

// Grids of 2, 3, 4, 6 and 8 ranks. `few` takes a sample of the larger ones.
std::vector<GridExtents> grids(bool all) {
  std::vector<GridExtents> list;
  for (const int ranks : {2, 3, 4, 6, 8})
    for (int sample = 1; sample <= ranks; ++sample)
      for (int depth = 1; depth <= ranks; ++depth)
        for (int height = 1; height <= ranks; ++height)
          for (int width = 1; width <= ranks; ++width)
            if (sample * depth * height * width == ranks) list.push_back({sample, depth, height, width});
  if (all) return list;
  std::erase_if(list, [](const GridExtents& g) { return g.sample * g.depth * g.height * g.width == 8; });
  for (const GridExtents& g : {GridExtents{1, 2, 2, 2}, GridExtents{8, 1, 1, 1}, GridExtents{2, 4, 1, 1}, GridExtents{2, 1, 2, 2},
                               GridExtents{1, 1, 1, 8}})
    list.push_back(g);
  return list;
}

bool all_tests() { return std::getenv("MPIGRAD_TEST_ALL") != nullptr; }

// Of the full network with all tests; else of one with fewer filters, whose layers are the same.
CosmoFlowOptions hybrid() { return {.batch_norm = true, .filter_divisor = all_tests() ? 1 : 8}; }

void check_grids(const Run& run, const std::vector<GridExtents>& list) {
  const auto one = train(run, {});
  CHECK(one.back() < one.front());
  for (const auto& g : list) {
    CAPTURE(g.sample);
    CAPTURE(g.depth);
    CAPTURE(g.height);
    CAPTURE(g.width);
    testing::note_progress("CosmoFlow on another grid");
    CHECK(largest_difference(train(run, g), one) < 1e-10);
  }
}

}  // namespace

TEST_CASE("CosmoFlow has exactly the published numbers of parameters") {
  for (const std::int64_t extent : {16, 32, 64, 128, 256, 512}) CHECK(parameter_count({}, extent) == 9437636);
  CHECK(parameter_count({.batch_norm = true}, 128) == 9439652);
  CHECK(parameter_count({.variant = CosmoFlowVariant::mlperf}, 128) == 8907556);
}

TEST_CASE("CosmoFlow, hybrid: 20 steps are the same on every grid") { check_grids({.options = hybrid()}, grids(all_tests())); }

TEST_CASE("CosmoFlow, MLPerf: 20 steps are the same on mixed grids") {
  Run run{.options = {.variant = CosmoFlowVariant::mlperf, .filter_divisor = 8}, .extent = 32};
  if (all_tests()) return check_grids(run, grids(true));
  check_grids(run, {{1, 3, 1, 1}, {1, 1, 2, 2}, {3, 2, 1, 1}, {2, 2, 2, 1}});
}
