#pragma once
// An estimate of a training step on any grid, made from the step of one rank with the whole batch. It is good enough to order
// grids; the first of these are then laid out op by op. Not installed.

#include <cstdint>
#include <vector>

#include "examples/studies/plan/planner/search/search.h"

namespace mpigrad::planner {

class Estimate {
 public:
  // `whole` is a step of one rank; the arguments must outlive this object.
  Estimate(const StepTrace& whole, const Machine& machine, const SearchOptions& options, const OpTimes& ops);
  struct Result {
    double seconds = 0;
    double bytes = 0;  // of tensors
  };
  Result of(const Choice& choice) const;

 private:
  // The work of an event that takes time.
  struct Work {
    const StepEvent* event = nullptr;
    const Shape* shape = nullptr;  // of the activation that it processes
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
