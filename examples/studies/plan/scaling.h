#pragma once
// Strong and weak scaling by simulation: `plan simulate --scaling`, and figures of it.

#include <string>
#include <vector>

#include "examples/studies/plan/simulate.h"

namespace mpigrad::plan {

// One grid of a curve. Seconds are means of a step.
struct ScalingPoint {
  std::string grid;
  int ranks = 1;
  std::int64_t batch = 1, memory = 0;  // samples in a step; bytes of tensors on a rank
  double seconds = 0, compute = 0, halos = 0, collectives = 0;
  // Samples per second and rank, relative to the curve's first grid.
  double efficiency = 1;
  double samples_per_second() const { return static_cast<double>(batch) / seconds; }
};
// From options.grid in doublings to at most `to_ranks` ranks. "weak": samples and batch double. "strong": the batch stays, and
// the axis of space along which a rank has most places is split in two; of equal ones depth, then height. UsageError: as
// simulate(); options that only a single simulation has; no larger grid.
std::vector<ScalingPoint> scaling_points(const SimulateOptions& options);
int scaling(const SimulateOptions& options);

// Names and values of a point, for tables.
std::vector<std::string> scaling_header();
std::vector<std::string> scaling_row(const ScalingPoint& point);

}  // namespace mpigrad::plan
