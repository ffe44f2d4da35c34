#pragma once
// Which settings are tried, for how long, and which of them go on.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/studies/hpo/space.h"

namespace mpigrad::hpo {

using Setting = std::vector<std::string>;  // a value of each parameter, in their order

// All values of lists and points of ranges with each other; the last parameter changes the fastest. UsageError: a range without
// points, more than a million.
std::vector<Setting> grid(const Space& space);
// So many, each once. The first ones do not depend on how many. UsageError: there are fewer.
std::vector<Setting> draws(const Space& space, std::uint64_t seed, int trials);

// So many trials with so much of the resource each; 0: all that the program takes.
struct Rung {
  int trials = 0, resource = 0;
};
// Successive halving: of a rung's trials the best go on to the next one.
struct Bracket {
  std::vector<Rung> rungs{};
};
// L. Li et al., Hyperband, JMLR 18 (2018) 185, algorithm 1: brackets from the one that begins with the most trials to the one
// that only draws at random. `most` is R of the paper, in whole units of the resource; `eta` is 2 or more.
std::vector<Bracket> hyperband(int most, int eta);
// One bracket of so many trials, whose last rung has `most`.
Bracket halving(int trials, int most, int eta);
// As many trials as leave one for the last rung, where the first has the least possible.
int trials_of_halving(int most, int eta);

// Places of the best values, the best first, no more than `count`; none where a trial failed, which is never among them. Of equal
// ones the first.
std::vector<std::size_t> best_of(const std::vector<std::optional<double>>& values, bool minimize, std::size_t count);

// Trials are numbered from 1; those of a bracket follow those of the one before.
struct Plan {
  std::vector<Setting> settings{};
  std::vector<Bracket> brackets{};
};
struct Task {
  int trial = 0, bracket = 0, rung = 0, resource = 0;  // brackets and rungs from 0
};

// What may start when. A rung of a bracket waits for the one before; brackets do not wait for each other.
class Schedule {
 public:
  Schedule(const Plan& plan, bool minimize);
  // The end of a trial in a rung, in any order; no value: it failed.
  void record(int trial, int rung, std::optional<double> value);
  // One that has neither ended nor been given out; none: there is none, for now.
  std::optional<Task> next();
  // It was given out and is not under way any more.
  void give_back(const Task& task) { given_.erase({task.trial, task.rung}); }

 private:
  struct State {
    Bracket bracket{};
    std::size_t rung = 0;
    std::vector<int> trials{};  // of that rung
  };
  void advance(State& state) const;

  std::vector<State> states_{};
  bool minimize_;
  std::map<std::pair<int, int>, std::optional<double>> ended_{};
  std::map<std::pair<int, int>, bool> given_{};
};

}  // namespace mpigrad::hpo
