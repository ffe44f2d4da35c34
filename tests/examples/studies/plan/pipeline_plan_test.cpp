// Predicted steps of pipelines: schedules computed by hand, costs of stages from traces, and plans with stages.

#include "examples/studies/plan/planner/search/pipeline.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "examples/studies/plan/planner/search/layer_grids.h"
#include "examples/studies/plan/planner/search/pipeline_plans.h"
#include "framework/optim/optimizer.h"
#include "framework/tensor/random.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/unet3d.h"
#include "models/nn/layers.h"
#include "models/nn/sequential.h"
#include "ops/elementwise/elementwise.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::planner;
using enum nn::PipelineSchedule;

namespace {

// Relative, however small the number is.
doctest::Approx Approx(double value) { return doctest::Approx(value).scale(0); }

// Stages in a chain, with messages of these seconds to the next and back.
PipelineCosts chain(const std::vector<StageTimes>& stages, double seconds = 0) {
  PipelineCosts costs{.stages = stages};
  for (int s = 0; s + 1 < static_cast<int>(stages.size()); ++s)
    for (const auto& [from, to] : {std::pair(s, s + 1), std::pair(s + 1, s)})
      costs.messages.push_back({.from = from, .to = to, .seconds = seconds});
  return costs;
}
void add_skip(PipelineCosts& costs, int from, int to, double seconds) {
  costs.messages.push_back({.from = from, .to = to, .seconds = seconds});
  costs.messages.push_back({.from = to, .to = from, .seconds = seconds});
}

Machine two_levels(double memory = 1e9) {
  Machine machine{.name = "two levels"};
  machine.device = {.name = "GPU", .memory = memory, .memory_bandwidth = 1e11, .flops = {{"float32", 1e11}}, .launch = 1e-6};
  machine.levels = {{"node", 2, 2e-6, 2e10, 1}, {"network", 64, 8e-6, 5e9, 2}};
  return machine;
}

}  // namespace

TEST_CASE("pipeline plans: equal stages take (M + P - 1)(F + B) in both schedules") {
  const StageTimes times{.forward = 2, .backward = 3, .last_backward = 3};
  for (const int stages : {1, 2, 3, 5})
    for (const std::int64_t micro_batches : {1, 2, 4, 7})
      for (const auto schedule : {fill_drain, one_forward_one_backward}) {
        const auto costs = chain(std::vector(static_cast<std::size_t>(stages), times));
        const auto time = simulate_pipeline(costs, schedule, micro_batches);
        const auto passes = static_cast<double>(micro_batches + stages - 1);
        CHECK(time.seconds == Approx(5 * passes));
        CHECK(time.bubble == doctest::Approx((stages - 1) / passes));
        REQUIRE(time.tasks.size() == static_cast<std::size_t>(stages));
        for (int s = 0; s < stages; ++s) {
          const auto expected = nn::pipeline_tasks(schedule, stages, s, micro_batches);
          const auto& tasks = time.tasks[static_cast<std::size_t>(s)];
          CHECK(std::equal(tasks.begin(), tasks.end(), expected.begin(), expected.end(), [](const auto& a, const auto& b) {
            return a.micro_batch == b.micro_batch && a.forward == b.forward;
          }));
        }
      }
}

TEST_CASE("pipeline plans: messages delay, skips included; reductions come after the messages") {
  const StageTimes one{.forward = 1, .backward = 1, .last_backward = 1};
  auto costs = chain({one, one, one}, 0.5);
  // Forward 0 to 1, 1.5 to 2.5, 3 to 4; backward 4 to 5, 5.5 to 6.5, 7 to 8.
  CHECK(simulate_pipeline(costs, fill_drain, 1).seconds == Approx(8));
  // The last stage waits for the skip until 6, the first for its cotangent until 8 + 5.
  add_skip(costs, 0, 2, 5);
  const auto skipped = simulate_pipeline(costs, fill_drain, 1);
  CHECK(skipped.tasks[2][0].begin == Approx(6));
  CHECK(skipped.tasks[1][1].begin == Approx(8.5));
  CHECK(skipped.seconds == Approx(14));
  CHECK(skipped.bubble == Approx(1 - 6.0 / 42));
  // Without overlap a stage receives one message after the other: 2.5 + 5.5, and 11.5 + 5.5.
  costs.overlaps = false;
  CHECK(simulate_pipeline(costs, fill_drain, 1).seconds == Approx(18));

  // Stage 1: F0 1-2, B0 2-4, F1 4-5, B1 5-8, whose message leaves at 7. Stage 0: F0 0-1, F1 1-2, B0 4-6, B1 7-10.
  const StageTimes reduced{.forward = 1, .backward = 2, .last_backward = 3, .update = 0.5};
  const auto time = simulate_pipeline(chain({reduced, reduced}), one_forward_one_backward, 2);
  CHECK(time.tasks[0][3].begin == Approx(7));
  CHECK(time.seconds == Approx(10.5));
  CHECK(time.bubble == Approx(1 - 15.0 / 21));
  CHECK(has(error_text([&] { simulate_pipeline({.stages = {one}, .messages = {{.from = 0, .to = 1}}}, fill_drain, 1); }),
            "from stage 0 to stage 1 of 1"));
}

TEST_CASE("pipeline plans: folded placement of a symmetric chain") {
  const StageTimes outer{.forward = 1, .backward = 1, .last_backward = 1},
      bottom{.forward = 2, .backward = 2, .last_backward = 2};
  auto costs = chain({outer, bottom, outer});
  // Stages 0 and 2 share a rank: their skip takes no time.
  add_skip(costs, 0, 2, 100);
  CHECK(simulate_folded(costs, 1).seconds == Approx(8));
  CHECK(simulate_pipeline(costs, fill_drain, 1).seconds > 100);
  // Rank 0: F0 0-1 and F1 1-2 of stage 0, F0 3-4 and B0 4-5 and F1 5-6 and B1 6-7 of stage 2, B0 7-8 and B1 9-10 of stage 0.
  // Rank 1: F0 1-3, F1 3-5, B0 5-7, B1 7-9.
  const auto time = simulate_folded(costs, 2);
  CHECK(time.seconds == Approx(10));
  CHECK(time.bubble == Approx(0.2));
  CHECK(time.tasks[2][1].begin == Approx(4));
  CHECK(!time.tasks[2][1].forward);
  CHECK(has(error_text([&] { simulate_folded(chain({outer, outer}), 1); }), "odd number of stages"));
}

TEST_CASE("pipeline plans: what costs more takes longer, and more micro-batches of the same batch have a smaller bubble") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const Philox random{seed, 5};
    std::uint64_t drawn = 0;
    const auto draw = [&] { return random.uniform(drawn++); };
    const auto stages = 2 + static_cast<std::size_t>(draw() * 4);
    const auto micro_batches = 1 + static_cast<std::int64_t>(draw() * 6);
    const auto schedule = draw() < 0.5 ? fill_drain : one_forward_one_backward;
    std::vector<StageTimes> times;
    for (std::size_t s = 0; s < stages; ++s)
      times.push_back({draw(), draw(), 0, draw()}), times[s].last_backward = times[s].backward + draw();
    auto costs = chain(times, draw());
    if (stages > 2) add_skip(costs, 0, static_cast<int>(stages) - 1, draw());
    costs.overlaps = draw() < 0.5;
    const auto before = simulate_pipeline(costs, schedule, micro_batches).seconds;
    double busiest = 0, all = 0;
    for (const auto& one : times) {
      const auto others = static_cast<double>(micro_batches - 1);
      const double own = (others + 1) * one.forward + others * one.backward + one.last_backward + one.update;
      busiest = std::max(busiest, own), all += own;
    }
    CHECK(before >= busiest);
    CHECK(simulate_pipeline(costs, schedule, micro_batches + 1).seconds > before);
    auto slower = costs;
    auto& changed = slower.stages[static_cast<std::size_t>(draw() * static_cast<double>(stages))];
    changed.forward += draw(), changed.backward += draw();
    CHECK(simulate_pipeline(slower, schedule, micro_batches).seconds >= before);
    slower = costs;
    slower.messages[static_cast<std::size_t>(draw() * static_cast<double>(slower.messages.size()))].seconds += draw();
    CHECK(simulate_pipeline(slower, schedule, micro_batches).seconds >= before);
  }
  double last = 1;
  for (const std::int64_t micro_batches : {1, 2, 4, 8, 16}) {
    const double part = 1 / static_cast<double>(micro_batches);
    const auto costs = chain(std::vector(4, StageTimes{part, 2 * part, 2 * part}));
    const double bubble = simulate_pipeline(costs, one_forward_one_backward, micro_batches).bubble;
    CHECK(bubble < last);
    last = bubble;
  }
}

TEST_CASE("pipeline plans: stages together do the work of one rank, and send what the next reads") {
  const auto machine = two_levels();
  SearchOptions options{.ranks = 2, .batch = 8};
  options.optimizer = [](Parameters& parameters) { return std::make_unique<Adam>(parameters); };
  const Subject subject{
      .make =
          [](bool) {
            return std::make_unique<UNet3d>(UNet3dOptions{.variant = UNet3dVariant::lbann, .filters = {4, 4, 8, 8}});
          },
      .input = {1, 16, 16, 16, 1}};
  for (const std::int64_t micro_batches : {1, 2, 4}) {
    CAPTURE(micro_batches);
    const auto alone = pipeline_costs({traced(subject, {.micro_batches = micro_batches}, options, 0)}, {0}, 0, 1, machine, {});
    std::vector<StepTrace> steps;
    for (int rank = 0; rank < 2; ++rank)
      steps.push_back(traced(subject, {.grid = {.stage = 2}, .micro_batches = micro_batches}, options, rank));
    const auto costs = pipeline_costs(steps, {0, 1}, 0, 1, machine, {});
    const auto sum = [&](double StageTimes::*part) { return costs.stages[0].*part + costs.stages[1].*part; };
    const auto& whole = alone.stages.at(0);
    CHECK(alone.messages.empty());
    CHECK(whole.forward > 0);
    CHECK(sum(&StageTimes::forward) == Approx(whole.forward).epsilon(1e-6));
    CHECK(sum(&StageTimes::backward) == Approx(whole.backward).epsilon(0.02));
    CHECK(sum(&StageTimes::last_backward) == Approx(whole.last_backward).epsilon(0.02));
    // The same memory is updated, by one op on each stage, whose launch takes 1e-6.
    CHECK(sum(&StageTimes::update) == Approx(whole.update + 1e-6));
    // Each activation of a micro-batch is a message, and its cotangent another.
    REQUIRE(costs.messages.size() == 2);
    CHECK(costs.messages[0].bytes == costs.messages[1].bytes);
    CHECK(costs.messages[0].bytes * static_cast<double>(micro_batches) == static_cast<double>(steps[0].sent_bytes));
    CHECK(costs.messages[0].seconds == Approx(2e-6 + costs.messages[0].bytes / 2e10));
    const auto apart = pipeline_costs(steps, {0, 2}, 0, 1, machine, {});
    CHECK(apart.messages[1].seconds == Approx(8e-6 + costs.messages[0].bytes * 2 / 5e9));
  }
}

namespace {

// Parameters that no axis of a grid splits.
struct Scaled : nn::Module {
  using Module::Module;
  Tensor operator()(const Tensor& x) override {
    return x * parameter("scale", {1, 1, 1, 1, global_shape(x)[4]}, nn::constant_value(1.5));
  }
};
struct Chain : nn::Module {
  Chain() {
    for (int i = 0; i < 4; ++i) layers.push_back(std::make_unique<Scaled>(*this, fmt::format("scaled{}", i)));
  }
  Tensor operator()(const Tensor& x) override {
    auto y = x;
    for (const auto& layer : layers) y = (*layer)(y);
    return y;
  }
  std::vector<std::unique_ptr<Scaled>> layers;
};

}  // namespace

TEST_CASE("pipeline plans: the search chooses stages where nothing else fits") {
  const Subject subject{.make = [](bool) { return std::make_unique<Chain>(); }, .input = {1, 1, 1, 1, 1000}};
  SearchOptions options{.ranks = 2, .batch = 4, .own_grids = false, .best = 100, .traced = 0};
  options.optimizer = [](Parameters& parameters) { return std::make_unique<Adam>(parameters); };
  const auto whole = one_rank_step(subject, two_levels(), "float32", options);
  const auto memory = [&](const Choice& choice) { return evaluate(subject, two_levels(), choice, options, whole).memory; };
  auto least = INT64_MAX;
  for (auto choice : grids_for(subject, options))
    for (const bool sharded : {false, true}) {
      choice.sharded_weights = sharded;
      least = std::min(least, memory(choice));
    }
  const Choice pipeline{.grid = {.stage = 2}, .micro_batches = 4};
  REQUIRE(memory(pipeline) < least);
  const auto room = 0.5 * static_cast<double>(least + memory(pipeline)) / options.usable;
  const auto plans = search(subject, two_levels(room), options);
  const auto& best = plans.front();
  CHECK(best.fits);
  CHECK(best.choice.grid.stage == 2);
  CHECK(best.seconds > 0);
  CHECK(best.bubble > 0);
  CHECK(best.bubble < 1);
  CHECK(best.folded > 0);
  CHECK(has(to_string(best.choice), "stage=2, "));
  CHECK(has(to_string(best.choice), " micro-batches"));
  CHECK(grid_text({.depth = 2, .stage = 3}, {}) == "stage=3,depth=2");
  CHECK(std::none_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.fits && plan.choice.grid.stage == 1; }));
  options.stages = 1;
  CHECK(!search(subject, two_levels(room), options).front().fits);
  // More stages than layers: no such plan, and no error.
  options.stages = 8, options.ranks = 8, options.batch = 8;
  for (const auto& plan : search(subject, two_levels(1), options)) CHECK(plan.choice.grid.stage <= 4);
}
