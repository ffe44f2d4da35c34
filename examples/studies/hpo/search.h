#pragma once
// A search: runs its trials on the slots, and keeps a folder from which it can be resumed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "examples/studies/hpo/command.h"
#include "examples/studies/hpo/farm.h"
#include "examples/studies/hpo/results.h"
#include "models/trainer/folder/folder_lock.h"

namespace mpigrad::hpo {

struct StrategyOptions {
  std::string name = "grid";
  int trials = 0;  // for random and halving; the first ones of a grid; 0: not given
  std::uint64_t seed = 1;
  int eta = 3, most = 0;  // most: 0: the space's
};
// UsageError: options that do not fit the strategy or the space.
Plan make_plan(const Space& space, const StrategyOptions& options);
// The output of --dry-run: brackets if the strategy has them, else every trial.
std::string to_string(const Space& space, const Plan& plan);

struct SearchOptions {
  StrategyOptions strategy{};
  std::filesystem::path out;
  double limit = 0, stall = 0;
  bool overwrite = false, retry_failed = false, quiet = false;
};

class Search {
 public:
  // Checks the folder, makes it and locks it. UsageError: it has other contents, or another search works there.
  Search(const Space& space, const Plan& plan, const Places& places, const SearchOptions& options);
  // True if all trials have ended, false after a signal (farm.h).
  bool run(const std::function<int()>& asked);

  const Space& space() const { return space_; }
  const Plan& plan() const { return plan_; }
  const Places& places() const { return places_; }
  const std::filesystem::path& out() const { return options_.out; }
  const std::vector<Result>& results() const { return results_->all(); }
  const Setting& setting(int trial) const { return plan_.settings[static_cast<std::size_t>(trial - 1)]; }
  int finished_before() const { return finished_before_; }
  // Seconds of searching, with earlier starts.
  double seconds() const;
  // The last result of each trial: those with the most resource first, the best first among them; failed ones last.
  std::vector<Result> ranked() const;
  // The command that trains with a trial's setting in a separate folder.
  std::string command_to_repeat(const Result& result) const;

 private:
  void claim_folder();
  std::filesystem::path folder_of(int trial) const;
  Work work_of(const Task& task, int slot);
  void note(const Task& task, const Ended& ended);
  Result judged(const Task& task, const Ended& ended) const;

  Space space_;
  Plan plan_;
  Places places_;
  SearchOptions options_;
  std::unique_ptr<tool::FolderLock> lock_;
  std::unique_ptr<Results> results_;
  Schedule schedule_;
  std::vector<Task> under_way_{};  // by id
  std::vector<int> again_{};       // failed trials that start again
  int finished_before_ = 0;
  double before_ = 0;  // seconds of earlier starts
};

}  // namespace mpigrad::hpo
