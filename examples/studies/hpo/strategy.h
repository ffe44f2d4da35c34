#pragma once
// Strategies: which settings are tried, how long, and which of them continue.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/studies/hpo/space.h"

namespace mpigrad::hpo {

using Setting = std::vector<std::string>;  // a value for each parameter, in order

// All combinations of the values of lists and the points of ranges; the last parameter changes fastest. UsageError: a range
// without points, more than a million combinations.
std::vector<Setting> grid(const Space& space);
// `trials` distinct random settings. The first ones do not depend on `trials`. UsageError: there are fewer.
std::vector<Setting> draws(const Space& space, std::uint64_t seed, int trials);

// A number of trials, each with this much of the resource; 0: all that the program takes.
struct Rung {
  int trials = 0, resource = 0;
};
// Successive halving: the best trials of a rung continue in the next one.
struct Bracket {
  std::vector<Rung> rungs{};
};
// L. Li et al., Hyperband, JMLR 18 (2018) 185, algorithm 1: brackets from the one that starts with the most trials to the one
// that only draws at random. `most` is R of the paper, in whole units of the resource; `eta` is 2 or more.
std::vector<Bracket> hyperband(int most, int eta);
// One bracket with this many trials in the first rung; the last rung has the resource `most`.
Bracket halving(int trials, int most, int eta);
// The number of trials for which one is left in the last rung, if the first rung has the least possible resource.
int trials_of_halving(int most, int eta);

// Indices of the best values, the best first, at most `count`; failed trials (no value) are never among them. Of equal values the
// first comes first.
std::vector<std::size_t> best_of(const std::vector<std::optional<double>>& values, bool minimize, std::size_t count);

// Trials are numbered from 1; a bracket's trials follow those of the previous bracket.
struct Plan {
  std::vector<Setting> settings{};
  std::vector<Bracket> brackets{};
};
struct Task {
  int trial = 0, bracket = 0, rung = 0, resource = 0;  // brackets and rungs from 0
};

// Decides what may start when. A rung waits for the previous one of its bracket; brackets do not wait for each other.
class Schedule {
 public:
  Schedule(const Plan& plan, bool minimize);
  // Records the end of a trial in a rung, in any order; no value: it failed.
  void record(int trial, int rung, std::optional<double> value);
  // A task that has neither ended nor been given out; none: there is none at the moment.
  std::optional<Task> next();
  // The task was given out and is no longer under way.
  void give_back(const Task& task) { given_.erase({task.trial, task.rung}); }

 private:
  struct State {
    Bracket bracket{};
    std::size_t rung = 0;
    std::vector<int> trials{};  // trials in that rung
  };
  void advance(State& state) const;

  std::vector<State> states_{};
  bool minimize_;
  std::map<std::pair<int, int>, std::optional<double>> ended_{};
  std::map<std::pair<int, int>, bool> given_{};
};

}  // namespace mpigrad::hpo
