#include "examples/studies/plan/planner/search/pipeline_plans.h"

#include <algorithm>

#include "examples/studies/plan/planner/search/layer_grids.h"
#include "examples/studies/plan/planner/search/pipeline.h"

namespace mpigrad::planner {
namespace {

// The traces of one rank of each stage, and how they are timed.
struct Traces {
  int place = 0, ranks = 1;
  StepTimeOptions timing{};
  std::vector<StepTrace> steps;
};

Traces traces_of(const Subject& subject, const Machine& machine, const Choice& choice, const SearchOptions& o,
                 const OneRankStep& whole) {
  Traces result;
  auto each = choice.grid;
  each.stage = 1;
  result.place = busiest(choice, whole.extents).front(), result.ranks = ranks_of(each);
  result.timing = {.node_ranks = working_node_ranks(machine, o.ranks, o.node_ranks), .grid = each};
  for (int stage = 0; stage < choice.grid.stage; ++stage)
    result.steps.push_back(traced(subject, choice, o, stage * result.ranks + result.place));
  return result;
}

PipelineCosts costs_of(const Traces& traces, const std::vector<int>& groups, const Machine& machine, const Setting& setting) {
  auto timing = traces.timing;
  timing.tf32 = setting.precision == "tf32", timing.ops = setting.ops;
  return pipeline_costs(traces.steps, groups, traces.place, traces.ranks, machine, timing);
}

// The costs with stage `middle` and the next as one stage.
PipelineCosts joined_in(const PipelineCosts& costs, int middle) {
  PipelineCosts result{.overlaps = costs.overlaps};
  for (int s = 0; s < static_cast<int>(costs.stages.size()); ++s) {
    const auto& times = costs.stages[static_cast<std::size_t>(s)];
    if (s != middle + 1) {
      result.stages.push_back(times);
      continue;
    }
    auto& both = result.stages.back();
    both.forward += times.forward, both.backward += times.backward;
    both.last_backward += times.last_backward, both.update += times.update;
  }
  for (auto message : costs.messages) {
    for (int* end : {&message.from, &message.to})
      if (*end > middle) --*end;
    if (message.from != message.to) result.messages.push_back(message);
  }
  return result;
}

}  // namespace

std::vector<Plan> evaluate_pipeline(const Subject& subject, const Machine& machine, const Choice& choice, const SearchOptions& o,
                                    const std::vector<Setting>& settings) {
  const auto traces = traces_of(subject, machine, choice, o, *settings.front().whole);
  std::vector<int> groups;
  double state = 0;
  std::int64_t memory = 0;
  for (int stage = 0; stage < choice.grid.stage; ++stage) {
    const auto& step = traces.steps[static_cast<std::size_t>(stage)];
    groups.push_back(stage);
    state += static_cast<double>(step.parameter_bytes + step.optimizer_bytes);
    memory = std::max(memory, step.peak_bytes);
  }
  std::vector<Plan> plans;
  for (const auto& setting : settings) {
    const auto costs = costs_of(traces, groups, machine, setting);
    const auto time = simulate_pipeline(costs, DescribeOptions().schedule, choice.micro_batches);
    Plan plan{.choice = choice, .seconds = time.seconds, .bubble = time.bubble, .memory = memory};
    plan.choice.precision = setting.precision;
    auto timing = traces.timing;
    timing.tf32 = setting.precision == "tf32", timing.ops = setting.ops;
    int most = 0;
    for (const int stage : groups) {
      const auto& step = traces.steps[static_cast<std::size_t>(stage)];
      auto own = time_step(without_stage_messages(step, stage, traces.ranks, stage), stage * traces.ranks + traces.place, machine,
                           timing);
      if (own.total > plan.time.total) plan.time = std::move(own), most = stage;
    }
    finish(plan, traces.steps[static_cast<std::size_t>(most)], state, subject, machine, o, *setting.whole);
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<Guess> pipeline_choices(const Subject& subject, const SearchOptions& o, bool alike,
                                    const std::function<double(const Choice&)>& estimate) {
  constexpr std::size_t grids = 2;
  std::vector<Guess> result;
  for (int stages = 2; stages <= std::min(o.stages, o.ranks); ++stages) {
    if (o.ranks % stages != 0) continue;
    for (const int times : {1, 2, 4}) {
      const int micro_batches = times * stages;
      if (o.batch % micro_batches != 0) continue;
      auto each = o;
      each.ranks = o.ranks / stages, each.batch = o.batch / micro_batches;
      std::vector<Guess> found;
      for (auto& choice : grids_for(subject, each, alike)) {
        // The stages fill and drain while the others wait.
        const double filled = static_cast<double>(micro_batches + stages - 1) / micro_batches;
        const double seconds = estimate(choice) / stages * filled;
        choice.grid.stage = stages, choice.micro_batches = micro_batches;
        found.push_back({std::move(choice), seconds});
      }
      std::stable_sort(found.begin(), found.end(), [](const Guess& a, const Guess& b) { return a.seconds < b.seconds; });
      for (std::size_t i = 0; i < std::min(grids, found.size()); ++i) result.push_back(std::move(found[i]));
    }
  }
  std::stable_sort(result.begin(), result.end(), [](const Guess& a, const Guess& b) { return a.seconds < b.seconds; });
  return result;
}

double folded_seconds(const Subject& subject, const Machine& machine, const Choice& choice, const SearchOptions& o,
                      const Setting& setting) {
  // Each rank gets two of 2P stages; the two in the middle are one.
  const int groups = choice.grid.stage;
  auto folded = choice;
  folded.grid.stage = 2 * groups;
  Traces traces;
  try {
    traces = traces_of(subject, machine, folded, o, *setting.whole);
  } catch (const Error&) {
    return 0;
  }
  std::vector<int> on;
  for (int stage = 0; stage < 2 * groups; ++stage) on.push_back(std::min(stage, 2 * groups - 1 - stage));
  return simulate_folded(joined_in(costs_of(traces, on, machine, setting), groups - 1), choice.micro_batches).seconds;
}

}  // namespace mpigrad::planner
