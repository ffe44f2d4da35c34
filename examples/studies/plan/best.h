#pragma once
// The commands of `plan` that lay networks out op by op on a machine from a file, and the command that measures such a file.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace CLI {
class App;
}

namespace mpigrad::plan {

// plan best: the fastest ways to train on a number of ranks.
struct BestOptions {
  std::string network, machine, precision, plot;
  std::int64_t size = 0, ranks = 1, batch = 0, best = 5, checkpoint_steps = 0, candidates = 16, node_ranks = 0, stages = 8;
  double sample_bytes = 0;
  bool uniform = false, json = false, overwrite = false;
};
void add_best(CLI::App& app, BestOptions& options);
int best(const BestOptions& options);

// plan calibrate: measures the ranks on which it runs. Collective.
struct CalibrateOptions {
  std::vector<std::string> networks{};
  std::string out, add, name;
  std::int64_t size = 0, batch = 0, for_ranks = 0;
  double minutes = 3;
  std::string precision = "float32";
  bool brief = false, overwrite = false;
};
void add_calibrate(CLI::App& app, CalibrateOptions& options);
int calibrate(const Communicator& world, const CalibrateOptions& options);

}  // namespace mpigrad::plan
