#pragma once
// Separate grids for layers, where moving their inputs costs less than it saves. Not installed.

#include <vector>

#include "examples/studies/plan/planner/search/layer_choice.h"
#include "examples/studies/plan/planner/search/search.h"

namespace mpigrad::planner {

// The costs of layers on each of some grids, and of moving their inputs from one grid to another. Layers with weights choose; the
// layers after them run on the grid of their input.
struct LayerCosts {
  std::vector<std::string> layers{};  // layers that choose, in the order in which they run
  std::vector<const Plan*> grids{};   // the plans with the grids to choose from
  ChoiceCosts costs{};
};
// Uses the fastest of `plans` without separate grids of layers, recomputation or weights in parts, at most `most`. No layers if
// there are fewer than two grids, or if something runs before the first layer with weights.
LayerCosts layer_costs(const Subject& subject, const Machine& machine, const std::vector<Plan>& plans,
                       const SearchOptions& options, std::size_t most);

// At most one choice, in which each layer has the cheapest of the grids of `plans`; none if these are all the same. Only plans
// without separate grids of layers, recomputation or weights in parts count.
std::vector<Choice> with_layer_grids(const Subject& subject, const Machine& machine, const std::vector<Plan>& plans,
                                     const SearchOptions& options);

// Seconds to move a tensor from one grid to another and its cotangent back, on the rank that receives most.
double redistribution_seconds(const Shape& shape, DType dtype, const Choice& from, const Choice& to, const Machine& machine);

// The step of one rank of the choice's grid. Errors: as describe().
StepTrace traced(const Subject& subject, const Choice& choice, const SearchOptions& options, int rank);
// `input` is that of one sample.
std::vector<Diagnosis> diagnose(const Plan& plan, const StepTrace& step, const Shape& input, const Machine& machine,
                                const SearchOptions& options);
// Bytes that are read for a step.
double bytes_of_batch(const Shape& input, const SearchOptions& options);

}  // namespace mpigrad::planner
