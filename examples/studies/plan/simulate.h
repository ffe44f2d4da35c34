#pragma once
// The command of `plan` that simulates every rank of a grid for some training steps.

#include <cstdint>
#include <string>
#include <vector>

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
};
void add_simulate(CLI::App& app, SimulateOptions& options);
// UsageError: invalid options, or a grid too large for the machine or the network.
int simulate(const SimulateOptions& options);

}  // namespace mpigrad::plan
