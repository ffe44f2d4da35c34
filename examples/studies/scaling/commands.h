#pragma once
// The sub-commands of `scaling`. Each returns the exit code.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace CLI {
class App;
}

namespace mpigrad::scaling {

struct LearnOptions {
  std::string task = "lattice", machine, images, out = "scaling-out";
  std::vector<int> workers{1, 2, 4, 8, 64}, more_workers{};
  std::vector<double> learning_rates{};
  std::int64_t batch = 0, budget = 0, seeds = 8, tuning_seeds = 2, sync_every = 0, every = 0, training = 0;
  double goal = 0;
  std::uint64_t data_seed = 1;
  bool gossip = false, json = false, quiet = false;
};
void add_learn(CLI::App& app, LearnOptions& options);
int learn(const Communicator& world, const LearnOptions& options);

struct SpeedOptions {
  std::vector<std::string> grids{}, command{};
  std::string mode = "strong", launcher, out = "scaling-out", name;
  std::int64_t repeats = 3, threads = 1;
  double limit = 0;  // seconds of a run; 0: none
  bool json = false, quiet = false, overwrite = false;
};
void add_speed(CLI::App& app, SpeedOptions& options);
int speed(const SpeedOptions& options);

// Writes report.html about all results in a folder; learn and speed also call it. Error: there are no results.
void write_report(const std::string& folder);

// Files of results in a folder, which write_report() reads: "learn-lattice-gradients.json", with its picture.
inline constexpr const char *learn_prefix = "learn-", *speed_prefix = "speed-", *report_file = "report.html";

}  // namespace mpigrad::scaling
