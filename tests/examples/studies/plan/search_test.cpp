// The planner's searches find what trying everything finds.

#include "examples/studies/plan/planner/search/search.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "examples/studies/plan/planner/search/layer_choice.h"
#include "examples/studies/plan/planner/search/layer_grids.h"
#include "framework/optim/optimizer.h"
#include "framework/tensor/random.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/unet3d.h"
#include "models/nn/layers.h"
#include "models/nn/sequential.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::planner;

namespace {

Machine two_levels(double memory = 1e9) {
  Machine machine{.name = "two levels"};
  machine.device = {.name = "GPU", .memory = memory, .memory_bandwidth = 1e11, .flops = {{"float32", 1e11}}, .launch = 1e-6};
  machine.levels = {{"node", 4, 2e-6, 2e10, 1}, {"network", 64, 8e-6, 5e9, 2}};
  return machine;
}

Subject cosmoflow() {
  return {.make = [](bool) { return std::make_unique<CosmoFlow>(CosmoFlowOptions{.filters = 4}); }, .input = {1, 32, 32, 32, 4}};
}
Subject unet() {
  return {.make =
              [](bool recompute) {
                return std::make_unique<UNet3d>(
                    UNet3dOptions{.variant = UNet3dVariant::lbann, .filters = {8, 8, 16, 16}, .recompute = recompute});
              },
          .recomputes = true,
          .input = {1, 16, 24, 16, 1}};
}

}  // namespace

TEST_CASE("planner: choices for layers are the cheapest of all, for chains, trees and skip connections") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const Philox random{seed, 3};
    std::uint64_t drawn = 0;
    const auto draw = [&] { return random.uniform(drawn++); };
    const int layers = 2 + static_cast<int>(draw() * 6), choices = 1 + static_cast<int>(draw() * 3);
    ChoiceCosts costs{.choices = choices};
    for (int i = 0; i < layers; ++i) {
      costs.own.emplace_back();
      for (int c = 0; c < choices; ++c) costs.own.back().push_back(draw());
    }
    const auto edge = [&](int from, int to) {
      ChoiceCosts::Edge made{from, to, {}};
      for (int c = 0; c < choices * choices; ++c) made.cost.push_back(draw());
      costs.edges.push_back(std::move(made));
    };
    for (int i = 1; i < layers; ++i) edge(i - 1, i);
    // As a U-Net has them, one inside the other, and some anywhere.
    for (int i = 0; i < layers / 2 - 1 && seed % 3 != 0; ++i) edge(i, layers - 1 - i);
    for (int i = 0; seed % 3 == 2 && i < 3; ++i) {
      const int a = static_cast<int>(draw() * layers), b = static_cast<int>(draw() * layers);
      if (a != b) edge(std::max(a, b), std::min(a, b));
    }
    const auto best = cheapest(costs), reference = cheapest_of_all(costs);
    CHECK(best.cost == doctest::Approx(reference.cost).epsilon(1e-12));
    CHECK(best.cost == doctest::Approx(cost_of(costs, best.choice)));
  }
  CHECK(has(error_text([] { cheapest({.choices = 2, .own = {{1}}, .edges = {}}); }), "1 costs of 2 choices"));
  CHECK(has(error_text([] { cheapest({.choices = 1, .own = {{1}, {1}}, .edges = {{0, 2, {1}}}}); }), "to 2 of 2"));
}

TEST_CASE("planner: the pruned search finds what laying out every grid finds, up to 16 ranks") {
  const auto machine = two_levels();
  for (const auto& subject : {cosmoflow(), unet()})
    for (const int ranks : {1, 2, 3, 4, 6, 7, 8, 12, 16}) {
      CAPTURE(ranks);
      CAPTURE(subject.recomputes);
      SearchOptions options{.ranks = ranks, .batch = 8, .own_grids = false, .stages = 1, .best = 1};
      const auto grids = static_cast<int>(grids_for(subject, options).size());
      const auto usual = grids > options.traced ? search(subject, machine, options) : std::vector<Plan>{};
      options.traced = std::max(8, 2 * grids / 3);
      const auto pruned = search(subject, machine, options);
      options.traced = 0;
      const auto all = search(subject, machine, options);
      CHECK(pruned.front().seconds == all.front().seconds);
      CHECK(pruned.front().fits);
      // Of thousands of ranks far fewer are laid out: a plan that is as good.
      if (!usual.empty()) CHECK(usual.front().seconds <= 1.002 * all.front().seconds);
    }
}

TEST_CASE("planner: grids of layers are the cheapest of all, up to 16 ranks, skip connections included") {
  const auto machine = two_levels();
  const auto subject = unet();
  for (const int ranks : {2, 3, 4, 6, 7, 8, 12, 16}) {
    CAPTURE(ranks);
    SearchOptions options{.ranks = ranks, .batch = 8, .own_grids = false, .stages = 1, .best = 1000, .traced = 0};
    const auto plans = search(subject, machine, options);
    if (plans.size() < 2) continue;
    const auto costs = layer_costs(subject, machine, plans, options, 2);
    CHECK(costs.layers.size() == 13);  // three levels of two, twice two and two expansions, and the head
    const auto best = cheapest(costs.costs), reference = cheapest_of_all(costs.costs);
    CHECK(best.cost == doctest::Approx(reference.cost).epsilon(1e-12));
    // A skip connection joins the first level to the last.
    CHECK(std::any_of(costs.costs.edges.begin(), costs.costs.edges.end(),
                      [](const auto& edge) { return edge.to - edge.from > 5; }));
  }
}

TEST_CASE("planner: layers that widen are split along filters, those that narrow along channels, at once") {
  struct Bottlenecks : nn::Sequential {
    Bottlenecks() {
      for (const int i : {1, 3}) {
        add<nn::Conv3d>(fmt::format("conv{}", i), {.out = 4096, .kernel = 1});
        add<nn::Conv3d>(fmt::format("conv{}", i + 1), {.out = 16, .kernel = 1});
      }
    }
  };
  const Subject subject{.make = [](bool) { return std::make_unique<Bottlenecks>(); }, .input = {1, 1, 1, 1, 16}};
  auto machine = two_levels();
  machine.levels[0].bandwidth = 1e9;
  const SearchOptions options{.ranks = 4, .batch = 1, .best = 100};
  const auto plans = search(subject, machine, options);
  const auto& best = plans.front();
  CHECK(to_string(best.choice) == "filter=4; conv2: channel=4; conv4: channel=4");
  // Of all ways to split each layer along one of the two, laid out op by op, it is the fastest.
  const auto whole = one_rank_step(subject, machine, "float32", options);
  const nn::LayerSplit channels(ChannelSplit::channels, "channel", true);
  double least = 1e30;
  for (unsigned ways = 0; ways < 16; ++ways) {
    Choice choice{.grid = {.channel = 4}};
    for (unsigned i = 0; i < 4; ++i)
      if ((ways >> i & 1) != 0) choice.grids.push_back({fmt::format("conv{}", i + 1), choice.grid, channels});
    least = std::min(least, evaluate(subject, machine, choice, options, whole).seconds);
  }
  CHECK(best.seconds == doctest::Approx(least).epsilon(1e-9));
  // What it takes is the sum of what its layers take under the one and under the other.
  std::vector<Plan> uniform;
  for (const auto& plan : plans)
    if (plan.choice.grids.empty() && !plan.choice.sharded_weights && plan.choice.grid.filter == 1) uniform.push_back(plan);
  REQUIRE(uniform.size() == 2);
  const auto costs = layer_costs(subject, machine, uniform, options, 2).costs;
  const auto all_one = std::vector<int>(4, 0);
  CHECK(best.seconds - uniform.front().seconds == doctest::Approx(cheapest(costs).cost - cost_of(costs, all_one)).epsilon(0.02));
}

TEST_CASE("planner: moving a tensor between grids costs what the rank sends that receives most") {
  Machine machine{.name = "one level"};
  machine.levels = {{"node", 64, 1, 1, 1}};
  const Choice depth{.grid = {.depth = 2}}, sample{.grid = {.sample = 2}}, both{.grid = {.depth = 2}};
  // Of 2 x 4 x 4 x 4 x 1 elements each rank has half on both grids, and a quarter of all on both at once: a quarter comes.
  CHECK(redistribution_seconds({2, 4, 4, 4, 1}, DType::float32, depth, sample, machine) == doctest::Approx(2 * (1 + 4 * 32)));
  CHECK(redistribution_seconds({2, 4, 4, 4, 1}, DType::float32, depth, both, machine) == 0);
}

TEST_CASE("planner: what does not fit is recomputed or stored in parts, or said not to fit") {
  SearchOptions options{.ranks = 2, .batch = 16, .stages = 1, .best = 100, .traced = 0};
  options.optimizer = [](Parameters& parameters) { return std::make_unique<Adam>(parameters); };
  const Subject subject{.make =
                            [](bool recompute) {
                              return std::make_unique<UNet3d>(UNet3dOptions{.filters = {8, 8, 8, 8}, .recompute = recompute});
                            },
                        .recomputes = true,
                        .input = {1, 16, 16, 16, 1}};
  const auto roomy = search(subject, two_levels(), options).front();
  CHECK(roomy.fits);
  CHECK(!roomy.choice.recompute);
  // Room for the best grid's recomputation, but for no grid as it is.
  auto least = INT64_MAX;
  Plan leanest;
  for (const auto& plan : search(subject, two_levels(1), options)) {
    CHECK(!plan.fits);
    if (plan.memory < least) least = plan.memory, leanest = plan;
  }
  auto lean = least;
  for (const bool sharded : {false, true}) {
    auto saving = leanest.choice;
    saving.recompute = true, saving.sharded_weights = sharded;
    lean = std::min(
        lean, evaluate(subject, two_levels(), saving, options, one_rank_step(subject, two_levels(), "float32", options)).memory);
  }
  REQUIRE(lean < least);
  const auto tight = search(subject, two_levels(0.5 * static_cast<double>(lean + least) / options.usable), options).front();
  CHECK(tight.fits);
  CHECK((tight.choice.recompute || tight.choice.sharded_weights));
  CHECK(tight.memory < least);
  CHECK(tight.seconds >= roomy.seconds);
}

TEST_CASE("planner: what limits a plan has a name and a number") {
  SearchOptions options{.ranks = 8, .batch = 8, .best = 1};
  options.sample_bytes = 1e9;
  auto machine = two_levels();
  machine.disk = {.read = 1e9};
  const auto plan = search(cosmoflow(), machine, options).front();
  CHECK(plan.data > 1);
  CHECK(plan.seconds == doctest::Approx(8));
  REQUIRE(!plan.limits.empty());
  CHECK(plan.limits.front().name == "input and staging");
  CHECK(plan.limits.front().number == doctest::Approx(plan.data / plan.seconds));
  // A slow link: gradients.
  machine = two_levels();
  machine.levels[0].bandwidth = machine.levels[1].bandwidth = 1e6;
  options.sample_bytes = 0;
  const auto slow = search(cosmoflow(), machine, options).front();
  CHECK(slow.limits.front().name != "input and staging");
  CHECK(slow.limits.front().number > 0.5);
}

TEST_CASE("planner: requests that cannot be") {
  auto machine = two_levels();
  CHECK(has(error_text([&] { search(cosmoflow(), machine, {.ranks = 65, .batch = 65}); }), "has 64 ranks"));
  CHECK(has(error_text([&] {
              search({.make = cosmoflow().make, .input = {1, 24, 24, 24, 4}}, machine, {.ranks = 1, .batch = 1});
            }),
            "power of two"));
  machine.levels[1].ranks = 128;
  // A prime number, more than one sample's planes, samples, or ranks along channels.
  CHECK(has(error_text([&] { search(cosmoflow(), machine, {.ranks = 127, .batch = 1}); }), "no grid of 127 ranks"));
}

TEST_CASE("planner: ranks with GPUs do not divide the optimizer's state") {
  SearchOptions o{.ranks = 4, .batch = 4};
  const auto state = [&](bool gpu) {
    o.optimizer = adam_on(gpu);
    return static_cast<double>(traced(cosmoflow(), {.grid = {.sample = 4}}, o, 0).optimizer_bytes);
  };
  CHECK(state(true) == doctest::Approx(4 * state(false)).epsilon(0.01));
}
