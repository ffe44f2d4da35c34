#pragma once
// Volumes whose opposite faces are neighbours, such as the boxes of simulations.

#include <vector>

#include "comm/distributed/grid.h"

namespace mpigrad {

// [N, D, H, W, C] -> [N, D + 2 w, H + 2 w, W + 2 w, C]: `width` w planes more on each side, copies of those at the opposite end.
// The first and the last rank along a split dimension have them; their adjoint goes back where they came from. A convolution of
// that without padding is the periodic one, and its outputs lie on the ranks on which x does. Error: fewer than w planes.
Tensor pad_periodic(const Tensor& x, std::int64_t width);

// y[i + shift] = x[i] along a dimension, periodically; any shift. Where the dimension is split over ranks each one receives what
// its block of y is made of; y is laid out as x is. Several shifts are made one after the other.
Tensor roll(const Tensor& x, std::int64_t shift, int axis);
Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const std::vector<int>& axes);

}  // namespace mpigrad
