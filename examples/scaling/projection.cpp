#include "examples/scaling/projection.h"

#include "framework/optim/optimizer.h"
#include "models/data/data.h"
#include "models/planner/search/layer_grids.h"
#include "models/planner/simulation/simulate.h"

namespace mpigrad::scaling {
namespace {

Shape sample_shape(const Task& task) {
  const auto& extents = task.training->extents();
  return {1, extents[0], extents[1], extents[2], task.training->channels()};
}

}  // namespace

StepSeconds simulated_step(const Task& task, const planner::Machine& machine, int workers, std::int64_t batch) {
  require(workers <= machine.ranks(), "[scaling] {} has {} ranks, {} workers need one each", machine.name, machine.ranks(),
          workers);
  planner::Subject subject{.make = [&](bool) { return task.make(); }, .input = sample_shape(task)};
  planner::SearchOptions options{.ranks = workers, .batch = workers * batch};
  options.optimizer = [&](Parameters& parameters) {
    return std::make_unique<SGD>(parameters, SGDAttributes{.momentum = task.momentum});
  };
  const planner::Choice choice{.grid = {.sample = workers}};
  const int rank = planner::representative_rank(choice.grid);
  const auto step = planner::traced(subject, choice, options, rank);
  const auto simulation = planner::simulate(step, rank, choice.grid, machine);
  StepSeconds result{.step = simulation.mean};
  for (const auto& each : simulation.ranks) result.waiting += each.collectives;
  result.waiting /= static_cast<double>(simulation.ranks.size()) * static_cast<double>(simulation.steps.size());
  return result;
}

double simulated_step(const Task& task, const planner::Machine& machine, int workers, std::int64_t batch,
                      const std::string& synchronisation, std::int64_t every) {
  const auto together = simulated_step(task, machine, workers, batch);
  if (synchronisation == "gradients" || workers == 1) return together.step;
  const double apart = together.step - together.waiting;
  if (synchronisation == "weights") return apart + together.waiting / static_cast<double>(every);
  auto net = task.make();
  auto input = sample_shape(task);
  input[0] = batch;
  net->build(input);
  double bytes = 0;
  for (const auto& x : net->parameters().tensors()) bytes += static_cast<double>(x.bytes());
  const auto& level = machine.levels[static_cast<std::size_t>(machine.level_between(0, workers - 1))];
  return apart + (level.latency + bytes * level.sharing / level.bandwidth) / static_cast<double>(every);
}

}  // namespace mpigrad::scaling
