#pragma once
// Trainings by logical workers until an error is reached, and what they say of learning speed-up.

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

// What decides the numbers of a training.
struct RunKey {
  std::string task, synchronisation = "gradients";  // gradients, weights, gossip
  std::int64_t every = 1;                           // steps
  int workers = 1;
  std::int64_t batch = 0;  // of a worker
  double learning_rate = 0;
  std::uint64_t seed = 1;
  std::string data{};  // which samples, and how many between two looks at the error
  double goal = 0;
  auto operator<=>(const RunKey&) const = default;
};

struct RunResult {
  bool reached = false;
  double budget = 0;          // samples
  double samples = 0;         // to the goal, between two looks by a straight line; not reached: all that it had
  double error = 0;           // at the last look
  double critical_batch = 0;  // CriticalBatch of its steps; NaN: undefined
  double samples_per_second = 0;
  int ranks = 1;
  std::int64_t copies = 0, copy_bytes = 0;  // of networks on the rank with the most
};

// Collective. `budget`: samples after which it is given up, with a last look there. A training that diverges has not reached the
// goal; one whose untrained network is there already has, with no samples.
RunResult train_to_goal(const Communicator& world, const Task& task, const RunKey& key, double budget);

// Runs that are there, in one file: what a search stopped at is gone on with. Every rank reads for itself.
class RunFile {
 public:
  // Errors: a file that is not such a table; tool::UsageError: one of another version of this program.
  explicit RunFile(const std::filesystem::path& path);
  // None: it has not been run, was given up with a smaller budget, or without a rank for each worker where there is one now.
  std::optional<RunResult> find(const RunKey& key, double budget, int ranks) const;
  void remember(const RunKey& key, const RunResult& result) { runs_[key] = result; }
  void write() const;  // of one rank
  const std::map<RunKey, RunResult>& runs() const { return runs_; }

 private:
  std::filesystem::path path_;
  std::map<RunKey, RunResult> runs_;
};

// One number of workers at the learning rate that was best for it.
struct WorkersResult {
  int workers = 1;
  double learning_rate = 0;
  bool at_end = false;  // of the rates to choose from: a better one may lie beyond
  bool tuned = false;   // else the rate is a law of the task
  int reached = 0, runs = 0;
  double samples = 0, lower = 0, upper = 0;  // median and quartiles over seeds; infinite: not reached by so many of them
  double critical_batch = 0;                 // median over seeds
  double measured_rate = 0;                  // samples per second where each worker had a rank, else 0
  std::int64_t copies = 0, copy_bytes = 0;
};

// What was measured, the fewest workers first.
struct Study {
  Task task;
  std::string synchronisation = "gradients";
  std::int64_t every = 1, batch = 0;
  double goal = 0;
  std::vector<WorkersResult> results{};
  // Geometric mean over results of several workers; NaN: undefined.
  double critical_batch = 0;
  std::string undefined{};  // why
};

}  // namespace mpigrad::scaling
