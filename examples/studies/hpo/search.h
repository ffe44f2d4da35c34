#pragma once
// A search: its trials on the slots, one after the other, with a folder from which it goes on.

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
  int trials = 0;  // of random and halving; of a grid the first ones; 0: not said
  std::uint64_t seed = 1;
  int eta = 3, most = 0;  // 0: the space's
};
// UsageError: options that do not go with the strategy or the space.
Plan make_plan(const Space& space, const StrategyOptions& options);
// What --dry-run prints: brackets of a strategy that has them, else every trial.
std::string to_string(const Space& space, const Plan& plan);

struct SearchOptions {
  StrategyOptions strategy{};
  std::filesystem::path out;
  double limit = 0, stall = 0;
  bool overwrite = false, retry_failed = false, quiet = false;
};

class Search {
 public:
  // Looks at the folder, makes it and locks it. UsageError: it has something else in it, another search is at work there.
  Search(const Space& space, const Plan& plan, const Places& places, const SearchOptions& options);
  // Whether all trials have ended; else a signal came (farm.h).
  bool run(const std::function<int()>& asked);

  const Space& space() const { return space_; }
  const Plan& plan() const { return plan_; }
  const Places& places() const { return places_; }
  const std::filesystem::path& out() const { return options_.out; }
  const std::vector<Result>& results() const { return results_->all(); }
  const Setting& setting(int trial) const { return plan_.settings[static_cast<std::size_t>(trial - 1)]; }
  int finished_before() const { return finished_before_; }
  // Of searching, earlier starts included.
  double seconds() const;
  // Of a trial's last rung the end, the best of the most of the resource first; failed ones last.
  std::vector<Result> ranked() const;
  // Trains with a trial's setting in a folder of its own.
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
  std::vector<int> again_{};       // trials that failed and begin anew
  int finished_before_ = 0;
  double before_ = 0;  // seconds of earlier starts
};

}  // namespace mpigrad::hpo
