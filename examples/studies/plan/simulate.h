#pragma once
// The command of `plan` that simulates every rank of a grid for some training steps.

#include <cstdint>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/search/search.h"
#include "examples/studies/plan/planner/simulation/simulate.h"
#include "examples/studies/plan/planner/step_time.h"

namespace CLI {
class App;
}

namespace mpigrad::plan {

struct SimulateOptions {
  std::string network, machine, grid, precision = "float32", trace;
  std::vector<std::string> grid_of{};                                            // "LAYERS:AXIS=RANKS,..."
  std::string straggler;                                                         // "RANK:FACTOR"
  std::int64_t size = 0;                                                         // 0: the network's default
  std::int64_t batch = 0, steps = 3, seed = 1, trace_ranks = 0, node_ranks = 0;  // ranks traced, ranks of a node; 0: the default
  double jitter = 0;
  bool recompute = false, sharded_weights = false, no_contention = false, overwrite = false, json = false;
  std::string scaling, plot;  // "strong", "weak" or ""; a PNG
  std::int64_t to_ranks = 0;  // of the largest grid of `scaling`
};
void add_simulate(CLI::App& app, SimulateOptions& options);
// UsageError: invalid options, or a grid too large for the machine or the network.
int simulate(const SimulateOptions& options);

// A simulation, with further numbers for its report.
struct SimulatedRun {
  planner::Machine machine;
  planner::Choice choice;
  int ranks = 1;
  planner::StepTime predicted{};
  double work = 0;          // seconds of a step on one rank, without waiting
  std::int64_t memory = 0;  // bytes of tensors on the rank that needs most of those laid out
  planner::Simulation simulation{};
};
// The simulation of one grid; ignores scaling, to_ranks and plot. UsageError: as simulate().
SimulatedRun simulated(const SimulateOptions& options);
// The mean per rank and step, over all ranks.
planner::RankTime mean_of(const planner::Simulation& simulation);

}  // namespace mpigrad::plan
