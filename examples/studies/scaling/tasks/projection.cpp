#include "examples/studies/scaling/tasks/projection.h"

#include <memory>
#include <numeric>
#include <vector>

#include "comm/transport/transport.h"
#include "examples/studies/plan/planner/search/layer_grids.h"
#include "examples/studies/plan/planner/simulation/simulate.h"
#include "examples/studies/plan/planner/step_time.h"
#include "framework/optim/optimizer.h"
#include "models/data/data.h"

namespace mpigrad::scaling {
namespace {

Shape sample_shape(const Task& task) {
  const auto& extents = task.training->extents();
  return {1, extents[0], extents[1], extents[2], task.training->channels()};
}

// A step of ranks that reduce their gradients.
double step_of_all(const Task& task, const planner::Machine& machine, int workers, std::int64_t batch) {
  planner::Subject subject{.make = [&](bool) { return task.make(); }, .input = sample_shape(task)};
  planner::SearchOptions options{.ranks = workers, .batch = workers * batch};
  options.optimizer = [&](Parameters& parameters) {
    return std::make_unique<SGD>(parameters, SGDAttributes{.momentum = task.momentum, .replicated = machine.device.gpu});
  };
  const planner::Choice choice{.grid = {.sample = workers}};
  const int rank = planner::representative_rank(choice.grid);
  return planner::simulate(planner::traced(subject, choice, options, rank), rank, choice.grid, machine).mean;
}

// Bytes that workers average.
std::int64_t bytes_of_state(const Task& task, std::int64_t batch) {
  const auto net = task.make();
  auto input = sample_shape(task);
  input[0] = batch;
  net->build(input);
  std::int64_t bytes = 0;
  for (const auto& x : net->parameters().tensors()) bytes += x.bytes();
  for (const auto& [name, buffer] : net->buffers()) bytes += buffer.bytes();
  return bytes;
}

double all_reduce(const planner::Machine& machine, int workers, std::int64_t bytes) {
  auto ranks = std::make_shared<std::vector<int>>(static_cast<std::size_t>(workers));
  std::iota(ranks->begin(), ranks->end(), 0);
  const DryRecord call{.kind = CollectiveKind::allreduce, .bytes = bytes, .ranks = ranks};
  return planner::collective_seconds(call, machine, machine.levels.front().ranks);
}

double message(const planner::Machine& machine, int workers, std::int64_t bytes) {
  const auto& level = machine.levels[static_cast<std::size_t>(machine.level_between(0, workers - 1))];
  return level.latency + static_cast<double>(bytes) * level.sharing / level.bandwidth;
}

}  // namespace

double simulated_step(const Task& task, const planner::Machine& machine, int workers, std::int64_t batch,
                      const std::string& synchronisation, std::int64_t every) {
  require(workers <= machine.ranks(), "[scaling] {} has {} ranks, {} workers need one each", machine.name, machine.ranks(),
          workers);
  if (synchronisation == "gradients" || workers == 1) return step_of_all(task, machine, workers, batch);
  const auto bytes = bytes_of_state(task, batch);
  const double exchange = synchronisation == "weights" ? all_reduce(machine, workers, bytes) : message(machine, workers, bytes);
  return step_of_all(task, machine, 1, batch) + exchange / static_cast<double>(every);
}

}  // namespace mpigrad::scaling
