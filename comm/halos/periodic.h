#pragma once
// Periodic boundaries: volumes whose opposite faces are neighbours, such as the boxes of simulations.

#include <vector>

#include "comm/distributed/grid.h"

namespace mpigrad {

// y[i + shift] = x[i] along a dimension, periodically; any shift. Where the dimension is split over ranks, each rank receives the
// parts of its block of y; y has the layout of x. Several shifts are applied one after the other.
Tensor roll(const Tensor& x, std::int64_t shift, int axis);
Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const std::vector<int>& axes);

}  // namespace mpigrad
