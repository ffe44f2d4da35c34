// Accuracy of the planner's predictions of pipelined steps on this machine: two stages on the two ranks of this job.
//
//   mpiexec -n 2 build/tests/pipeline_accuracy --out pipeline.csv
//
// All predictions come before the first step: they time single ops at the shapes of the stages, and messages. Steps then run in
// rounds of all cases, so that a change of the machine's speed affects all cases. For each case the program prints the predicted
// and the measured seconds of a step, the bubble (the fraction of the ranks' time in which they compute nothing), and the
// accuracy 1 - |predicted - measured| / measured of the seconds.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>

#include "comm/launch.h"
#include "examples/studies/plan/networks.h"
#include "examples/studies/plan/planner/machine/measure.h"
#include "examples/studies/plan/planner/search/pipeline.h"
#include "framework/optim/optimizer.h"
#include "models/trainer/tool/command_line.h"
#include "ops/random/random.h"

namespace mpigrad {
namespace {

constexpr int stages = 2;

struct Case {
  const char* network;
  std::int64_t size, micro_batch;  // samples of a micro-batch
};
const std::vector<Case> networks{{"cosmoflow", 64, 1}, {"unet3d", 32, 1}, {"unet3d-lbann", 32, 1}};

struct Result {
  double seconds = 0, bubble = 0;
};

std::unique_ptr<Optimizer> adam(Parameters& parameters) { return std::make_unique<Adam>(parameters); }

Shape part_of(const Case& c, const planner::Subject& subject) {
  auto part = subject.input;
  part[0] = c.micro_batch;
  return part;
}

// On rank 0, which has the times of calls.
Result predict(const Case& c, const Communicator& world, std::int64_t micro_batches, const planner::Machine& base) {
  const auto subject = plan::subject_named(c.network, c.size);
  planner::OpMeasurement measurement(world, {.seconds = 0.03, .repeats = 3});
  std::vector<StepTrace> steps;
  for (int stage = 0; stage < stages; ++stage) {
    const auto net = subject.make(false);
    DescribeOptions options{.grid = {.stage = stages}, .accumulate = micro_batches, .optimizer = adam};
    options.objective = [&](const Tensor& x) { return subject.objective(*net, x); };
    steps.push_back(
        trace_step(*net, part_of(c, subject), options, stage, stages, {.events = true, .timer = measurement.timer()}));
  }
  auto machine = base;
  machine.ops = measurement.ops();
  for (const auto& step : steps) machine.ops.push_back(planner::measure_update(world, step.parameter_bytes / 4, adam));
  if (world.rank() != 0) return {};
  const auto costs = planner::pipeline_costs(steps, {0, 1}, 0, 1, machine, {.node_ranks = stages});
  const auto time = planner::simulate_pipeline(costs, nn::PipelineOptions().schedule, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    const auto& times = costs.stages[static_cast<std::size_t>(stage)];
    fmt::print("# {} stage {}: forward {:.4f} s, backward {:.4f} s, the last {:.4f} s, update {:.4f} s\n", c.network, stage,
               times.forward, times.backward, times.last_backward, times.update);
  }
  return {time.seconds, time.bubble};
}

// Runs steps as a trainer does, and adds their results.
void run_steps(const Case& c, const Communicator& world, std::int64_t micro_batches, std::vector<Result>& results) {
  constexpr int warm = 2, timed = 4;
  const auto subject = plan::subject_named(c.network, c.size);
  const auto pipeline = nn::Pipeline::make(world, {.grid = {.stage = stages}});
  const auto net = subject.make(false);
  const auto layout = input_layout(pipeline->grid(), part_of(c, subject));
  net->build(layout, {.pipeline = pipeline});
  net->train();
  const auto optimizer = adam(net->parameters());
  for (int i = 0; i < warm + timed; ++i) {
    const auto x = constant(random_uniform(layout->box().extents(), {1, 2}, 0, 1).with_layout(layout));
    world.transport().barrier();
    const double start = detail::seconds_now();
    const auto step =
        pipeline->gradient(*net, micro_batches, [&](std::int64_t) { return subject.objective(*net, pipeline->input(x)); });
    const double updating = detail::seconds_now();
    optimizer->step(step.gradients);
    double mine = detail::seconds_now() - updating, busy = 0;
    for (const auto& task : step.tasks) mine += task.end - task.begin - task.waited;
    world.transport().barrier();
    const double seconds = detail::seconds_now() - start;
    world.transport().allreduce(&mine, &busy, 1, DType::float64, CombineOp::sum);
    if (i >= warm) results.push_back({seconds, 1 - busy / (stages * seconds)});
  }
}

Result median(std::vector<Result> results) {
  std::sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.seconds < b.seconds; });
  return results.at(results.size() / 2);
}

void compare(const Communicator& world, const std::string& out, const std::string& only, std::int64_t micro_batches, int rounds) {
  require(world.size() == stages, "[pipeline_accuracy] {} ranks measure {} stages, got {}: mpiexec -n {}", stages, stages,
          world.size(), stages);
  auto cases = networks;
  std::erase_if(cases, [&](const Case& c) { return !only.empty() && only != c.network; });
  planner::Machine machine{.name = "here"};
  machine.device = {.name = "processor", .memory = 1e12, .memory_bandwidth = 1e10, .flops = {{"float32", 5e10}}, .launch = 2e-6};
  machine.levels = {{"node", stages, 1e-6, 5e9, 1}};
  machine.overlaps = false;
  machine.calls = planner::measure_calls(world);
  std::vector<Result> predicted;
  for (const auto& c : cases) predicted.push_back(predict(c, world, micro_batches, machine));
  std::vector<std::vector<Result>> measured(cases.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < cases.size(); ++i) run_steps(cases[i], world, micro_batches, measured[i]);
  if (world.rank() != 0) return;
  std::string table = "network,stages,micro_batches,predicted_s,measured_s,accuracy,predicted_bubble,measured_bubble\n";
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& p = predicted[i];
    const auto m = median(measured[i]);
    table += fmt::format("{},{},{},{:.4f},{:.4f},{:.3f},{:.3f},{:.3f}\n", cases[i].network, stages, micro_batches, p.seconds,
                         m.seconds, 1 - std::abs(p.seconds - m.seconds) / m.seconds, p.bubble, m.bubble);
  }
  fmt::print("{}", table);
  if (!out.empty()) std::ofstream(out) << table;
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  CLI::App app("Accuracy of the planner's predictions of pipelined steps on this machine.", "pipeline_accuracy");
  std::string out, only;
  std::vector<std::string> names;
  for (const auto& c : networks) names.emplace_back(c.network);
  std::int64_t micro_batches = 4;
  int rounds = 3;
  app.add_option("--out", out, "file for the table");
  app.add_option("--only", only, "only this network")->check(CLI::IsMember(names));
  app.add_option("--micro-batches", micro_batches, "micro-batches of a step")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rounds", rounds, "rounds of all cases")->check(CLI::PositiveNumber)->capture_default_str();
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  return tool::finish(app, *transport, [&] {
    compare(Communicator(transport), out, only, micro_batches, rounds);
    return 0;
  });
}

}  // namespace
}  // namespace mpigrad

int main(int argc, char** argv) {
  return mpigrad::launch(
      argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) { return mpigrad::run(transport, argc, argv); });
}
