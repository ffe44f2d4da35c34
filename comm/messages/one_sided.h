#pragma once
// One-sided access with fences: every rank exposes a window, a tensor of rows, and each call is one epoch between two fences, in
// which every rank reads or changes rows of any window. Collective, as fences are; a rank may access nothing. The window is a
// value like any other: put and accumulate return the new one.

#include <vector>

#include "comm/collectives/collectives.h"

namespace mpigrad {

// Access i is to row rows[i] of the window of rank targets[i].
struct Access {
  std::vector<int> targets;
  std::vector<std::int64_t> rows;
};
// `count` rows of one rank's window, from `first` on.
Access rows_of(int target, std::int64_t first, std::int64_t count);

// y[i] = the row accessed;  windowbar = accumulate of ybar
Tensor get(const Tensor& window, const Communicator& comm, const Access& access);
// The window with all x[i] added to the rows accessed;  windowbar = ybar, xbar = get of ybar
Tensor accumulate(const Tensor& window, const Tensor& x, const Communicator& comm, const Access& access);
// The window with the rows accessed replaced by x[i];  xbar = get of ybar, windowbar = ybar, zero in the rows replaced.
// A row that is written twice is an Error on all ranks.
Tensor put(const Tensor& window, const Tensor& x, const Communicator& comm, const Access& access);

}  // namespace mpigrad
