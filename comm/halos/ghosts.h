#pragma once
// Blocks that were read from a file together with their neighbouring planes (ghost planes): ops that need only these planes do
// not communicate.

#include <array>

#include "comm/distributed/local_parts.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

// This rank's part of `block` [N, D, H, W, C], which has `low` and `high` additional planes on each side; the part is used with a
// layout. `width`: the number of planes that every rank has, the same on all ranks; a rank has fewer only where the volume ends.
// The result is a constant and keeps a reference to the block as long as it lives.
Tensor with_ghosts(const Tensor& block, const std::array<std::int64_t, 3>& low, const std::array<std::int64_t, 3>& high,
                   const std::array<std::int64_t, 3>& width);

namespace spatial {

// True if the needs of every rank are covered by the planes that it has; the same on all ranks.
bool ghosts_cover(const Tensor& x, const WindowedPlan& plan);
// x's local part with the planes around it that it needs: from its ghost planes where these suffice, else from other ranks.
Tensor windowed_input(const Tensor& x, const WindowedPlan& plan);

}  // namespace spatial
}  // namespace mpigrad
