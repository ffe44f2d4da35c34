#pragma once
// Jobs on slots: one that becomes free takes the next.

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
  std::filesystem::path output{};   // what it prints goes there
  std::filesystem::path metrics{};  // what grows while it gets on, beside the output
};

struct Ended {
  int id = 0;
  int code = 0;           // of the process; 128 and more: the signal that ended it
  std::string problem{};  // that the farm had with it: it could not be started, took too long, did not get on
  bool hung = false;
  double seconds = 0;
};

struct FarmOptions {
  int slots = 1;
  double limit = 0;        // seconds for a job; 0: none
  double stall = 0;        // seconds without a further byte; 0: none
  double grace = 20;       // seconds in which jobs that are asked to end do so
  int farewell = SIGTERM;  // the signal that asks them
};

// Asks `next` for work on a free slot (from 0), until it has none and no job is left; tells `ended` of each. `asked` is a signal
// that came for this process since it was last called, or 0: jobs are asked to end, and false comes back; how they end is not
// told. A further signal kills them.
bool run_farm(const FarmOptions& options, const std::function<std::optional<Work>(int slot)>& next,
              const std::function<void(const Ended& ended)>& ended, const std::function<int()>& asked);

}  // namespace mpigrad::hpo
