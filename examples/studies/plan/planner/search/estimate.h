#pragma once
// A training step on any grid, estimated from what one rank alone does for the whole batch: good enough to order grids, of which
// the first are then laid out op by op. Not installed.

#include <cstdint>
#include <vector>

#include "examples/studies/plan/planner/search/search.h"

namespace mpigrad::planner {

class Estimate {
 public:
  // `whole` is a step of one rank; all of them live as long as this.
  Estimate(const StepTrace& whole, const Machine& machine, const SearchOptions& options, const OpTimes& ops);
  struct Result {
    double seconds = 0;
    double bytes = 0;  // of tensors
  };
  Result of(const Choice& choice) const;

 private:
  // Of an event that takes time.
  struct Work {
    const StepEvent* event = nullptr;
    const Shape* shape = nullptr;  // of the activation that it works on
    bool product = false;
    OpTimes::Needs needs{};
  };
  std::vector<Work> works_;
  const StepTrace& whole_;
  const Machine& machine_;
  const SearchOptions& options_;
  const OpTimes& ops_;
};

}  // namespace mpigrad::planner
