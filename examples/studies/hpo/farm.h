#pragma once
// Runs jobs on slots: a slot that becomes free takes the next job.

#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mpigrad::hpo {

struct Work {
  int id = 0;
  std::vector<std::string> command{};
  std::filesystem::path output{};   // file for its output
  std::filesystem::path metrics{};  // file that grows while it makes progress, like the output
};

struct Ended {
  int id = 0;
  int code = 0;           // of the process; 128 + n: signal n ended it
  std::string problem{};  // why the farm ended it: not started, too long, no progress
  bool hung = false;
  double seconds = 0;
};

struct FarmOptions {
  int slots = 1;
  double limit = 0;        // seconds for a job; 0: none
  double stall = 0;        // seconds without a new byte; 0: none
  double grace = 20;       // seconds that jobs have to end after the signal
  int farewell = SIGTERM;  // the signal that asks jobs to end
};

// Calls `next` for work when a slot (numbered from 0) is free, until it returns none and no job is left; calls `ended` for each
// job. `asked` returns a signal that this process got since its last call, or 0. On a signal jobs are asked to end, `ended` is
// not called for them, and run_farm() returns false. A further signal kills them.
bool run_farm(const FarmOptions& options, const std::function<std::optional<Work>(int slot)>& next,
              const std::function<void(const Ended& ended)>& ended, const std::function<int()>& asked);

}  // namespace mpigrad::hpo
