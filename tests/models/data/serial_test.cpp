// A user's class is the same source without a grid, in a serial program, and with a grid.

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "comm/collectives/collectives.h"
#include "framework/engine/tape.h"
#include "framework/optim/optimizer.h"
#include "models/data/data.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "tests/models/data/made_source.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Network : nn::Module {
  Tensor operator()(const Tensor& x) override { return linear(global_avg_pool(square(conv(x)))); }
  nn::Conv3d conv{*this, "conv", {.out = 3, .kernel = 3, .padding = 1}};
  nn::Linear linear{*this, "linear", {.out = 4}};
};

std::vector<double> losses(const GridPtr& grid) {
  const data::Loader loader(std::make_shared<MadeSource>(MadeSamples{}),
                            {.grid = grid, .batch = 4, .seed = 1, .shuffle = true, .flips = true, .dtype = DType::float64});
  Network net;
  net.build(loader.layout(), {.seed = 2, .dtype = DType::float64});
  Adam adam(net, {.learning_rate = 0.02});
  std::vector<double> result;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch)
    for (const auto& [x, y] : loader.epoch(epoch)) {
      Tape tape(net);
      const auto share = mse(net(x), y);
      adam.step(tape.gradient(share));
      result.push_back(total(share));
    }
  return result;
}

}  // namespace

TEST_CASE("serial programs: a loader's layout, a network and total() without a grid as with one") {
  const auto expected = losses(nullptr);
  REQUIRE(expected.size() == 4);
  CHECK(expected[3] != expected[0]);
  for (const auto& extents : {GridExtents{}, GridExtents{.sample = 2}, GridExtents{.depth = 2}})
    check_on_ranks(ranks_of(extents), "a grid", [&](const Communicator& world) {
      const auto found = losses(make_grid(world, extents));
      require(found.size() == expected.size(), "[test] {} losses", found.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        require(std::abs(found[i] - expected[i]) < 1e-12 * expected[i], "[test] loss {} is {} instead of {}", i, found[i],
                expected[i]);
    });
}
