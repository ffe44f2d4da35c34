#pragma once
// Plans with stages of a pipeline, for the search. Not installed.

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/search/search.h"

namespace mpigrad::planner {

// A precision, and the step and op times for it.
struct Setting {
  std::string precision;
  const OneRankStep* whole = nullptr;
  const OpTimes* ops = nullptr;
};
// Ranks of a grid that include the one with the most work.
std::vector<int> busiest(const Choice& choice, const std::array<std::set<std::int64_t>, 3>& layers);
// Adds to a plan whose `time` and `seconds` are known the times outside of ops and calls, and the limits. `state`: bytes of the
// parameters and the optimizer's state of a rank of each stage.
void finish(Plan& plan, const StepTrace& step, double state, const Subject& subject, const Machine& machine,
            const SearchOptions& options, const OneRankStep& whole);

// Evaluates a choice with stages in several precisions with the same ops: `time` is that of the stage with the most work. Errors:
// those of nn::Pipeline for the network.
std::vector<Plan> evaluate_pipeline(const Subject& subject, const Machine& machine, const Choice& choice,
                                    const SearchOptions& options, const std::vector<Setting>& settings);
// A choice, and the seconds of its step with stages of equal work and messages that take no time.
struct Guess {
  Choice choice;
  double seconds = 0;
};
// For each number of stages the two grids with the best estimates, with as many micro-batches as stages, twice and four times as
// many, as far as they divide the batch. `estimate`: the seconds of a step on a grid.
std::vector<Guess> pipeline_choices(const Subject& subject, const SearchOptions& options, bool alike,
                                    const std::function<double(const Choice&)>& estimate);
// Seconds of a step of a choice with stages if placement is folded, with stages of about equal floating-point operations; 0: the
// network cannot be cut into that many.
double folded_seconds(const Subject& subject, const Machine& machine, const Choice& choice, const SearchOptions& options,
                      const Setting& setting);

}  // namespace mpigrad::planner
