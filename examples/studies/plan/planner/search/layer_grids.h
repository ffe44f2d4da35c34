#pragma once
// Grids of layers of their own, where moving their inputs costs less than it saves. Not installed.

#include <vector>

#include "examples/studies/plan/planner/search/layer_choice.h"
#include "examples/studies/plan/planner/search/search.h"

namespace mpigrad::planner {

// What layers cost on each of some grids, and moving what they read from one to another. Layers with weights choose; those behind
// them run where their input is.
struct LayerCosts {
  std::vector<std::string> layers{};  // that choose, in the order in which they run
  std::vector<const Plan*> grids{};   // from which they choose: of `plans`
  ChoiceCosts costs{};
};
// Of the fastest of `plans` without layers of their own grids, recomputation or weights in parts, at most `most`. No layers where
// there are fewer than two grids, or something runs before the first layer with weights.
LayerCosts layer_costs(const Subject& subject, const Machine& machine, const std::vector<Plan>& plans,
                       const SearchOptions& options, std::size_t most);

// At most one choice, whose layers have the cheapest of the grids of `plans` each, if they are not all the same. Plans without
// layers of their own grids, recomputation or weights in parts count.
std::vector<Choice> with_layer_grids(const Subject& subject, const Machine& machine, const std::vector<Plan>& plans,
                                     const SearchOptions& options);

// Seconds to move a tensor from one grid to another and its cotangent back, by the rank that receives most.
double redistribution_seconds(const Shape& shape, DType dtype, const Choice& from, const Choice& to, const Machine& machine);

// A step of one rank of the choice's grid. Errors: as describe().
StepTrace traced(const Subject& subject, const Choice& choice, const SearchOptions& options, int rank);
// `input` is that of one sample.
std::vector<Diagnosis> diagnose(const Plan& plan, const StepTrace& step, const Shape& input, const Machine& machine,
                                const SearchOptions& options);
// That are read for a step.
double bytes_of_batch(const Shape& input, const SearchOptions& options);

}  // namespace mpigrad::planner
