#pragma once
// Volumes whose opposite faces are neighbours, such as the boxes of simulations.

#include "comm/distributed/grid.h"

namespace mpigrad {

// [N, D, H, W, C] -> [N, D + 2 w, H + 2 w, W + 2 w, C]: `width` w planes more on each side, copies of those at the opposite end.
// The first and the last rank along a split dimension have them; their adjoint goes back where they came from. A convolution of
// that without padding is the periodic one, and its outputs lie on the ranks on which x does. Error: fewer than w planes.
Tensor pad_periodic(const Tensor& x, std::int64_t width);

}  // namespace mpigrad
