#pragma once
// The command of `plan` that follows every rank of a grid through some training steps.

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
  std::int64_t size = 0;                                                         // 0: the network's own
  std::int64_t batch = 0, steps = 3, seed = 1, trace_ranks = 0, node_ranks = 0;  // of a trace and a node, 0: as many as usual
  double jitter = 0;
  bool recompute = false, sharded_weights = false, no_contention = false, overwrite = false, json = false;
};
void add_simulate(CLI::App& app, SimulateOptions& options);
// UsageError: what makes no sense, a grid that the machine or the network has no room for.
int simulate(const SimulateOptions& options);

}  // namespace mpigrad::plan
