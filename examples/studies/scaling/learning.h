#pragma once
// Trainings by virtual workers until an error is reached, and their learning speed-up.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "examples/studies/scaling/tasks/task.h"
#include "models/train/workers/workers.h"

namespace mpigrad::scaling {

// Everything that determines the result of a training.
struct RunKey {
  std::string task, synchronisation = "gradients";  // gradients, weights, gossip
  std::int64_t every = 1;                           // steps
  int workers = 1;
  std::int64_t batch = 0;  // batch of a worker
  double learning_rate = 0;
  std::uint64_t seed = 1;
  std::string data{};  // which samples, and how many between two evaluations
  double goal = 0;
  auto operator<=>(const RunKey&) const = default;
};

struct RunResult {
  bool reached = false;
  double budget = 0;          // samples
  double samples = 0;         // to the goal, interpolated between evaluations; not reached: all samples
  double error = 0;           // at the last evaluation
  double critical_batch = 0;  // CriticalBatch over its steps; NaN: undefined
  double samples_per_second = 0;
  int ranks = 1;
  std::int64_t copies = 0, copy_bytes = 0;  // copies of the network on the rank with the most
};

// Collective. `budget`: the number of samples after which the training stops, with a last evaluation. A training that diverges
// has not reached the goal; if the untrained network already meets the goal, it is reached with no samples.
RunResult train_to_goal(const Communicator& world, const Task& task, const RunKey& key, double budget);

// Finished runs, in one file from which a search that stopped is resumed. Every rank reads for itself.
class RunFile {
 public:
  // Errors: a file that is not such a table; tool::UsageError: a table of another version of this program.
  explicit RunFile(const std::filesystem::path& path);
  // None: it was not run, was stopped at a smaller budget, or without a rank for each worker although there is one now.
  std::optional<RunResult> find(const RunKey& key, double budget, int ranks) const;
  void remember(const RunKey& key, const RunResult& result) { runs_[key] = result; }
  void write() const;  // on one rank
  const std::map<RunKey, RunResult>& runs() const { return runs_; }

 private:
  std::filesystem::path path_;
  std::map<RunKey, RunResult> runs_;
};

// The result for a number of workers at the best learning rate for it.
struct WorkersResult {
  int workers = 1;
  double learning_rate = 0;
  bool at_end = false;  // it is the last rate tried: a better one may lie beyond
  bool tuned = false;   // false: the rate is a law of the task
  int reached = 0, runs = 0;
  double samples = 0, lower = 0, upper = 0;  // median and quartiles over seeds; infinite: not reached by these
  double critical_batch = 0;                 // median over seeds
  double measured_rate = 0;                  // samples per second if each worker had a rank, else 0
  std::int64_t copies = 0, copy_bytes = 0;
};

// The results of a study, the fewest workers first.
struct Study {
  Task task;
  std::string synchronisation = "gradients";
  std::int64_t every = 1, batch = 0;
  double goal = 0;
  std::vector<WorkersResult> results{};
  // Geometric mean over the numbers of workers above 1; NaN: undefined.
  double critical_batch = 0;
  std::string undefined{};  // the reason
};

}  // namespace mpigrad::scaling
