#pragma once
// Periodic boundaries: volumes whose opposite faces are neighbours, such as the boxes of simulations.

#include <vector>

#include "comm/distributed/grid.h"

namespace mpigrad {

// [N, D, H, W, C] -> [N, D + 2 w, H + 2 w, W + 2 w, C]: adds `width` w planes on each side, copies of those at the opposite end.
// Along a split dimension the first and the last rank get them; their cotangents go back to where the copies came from. A
// convolution of the result without padding is the periodic one, and its outputs lie on the same ranks as x. Error: an extent of
// fewer than w planes.
Tensor pad_periodic(const Tensor& x, std::int64_t width);

// y[i + shift] = x[i] along a dimension, periodically; any shift. Where the dimension is split over ranks, each rank receives the
// parts of its block of y; y has the layout of x. Several shifts are applied one after the other.
Tensor roll(const Tensor& x, std::int64_t shift, int axis);
Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const std::vector<int>& axes);

}  // namespace mpigrad
