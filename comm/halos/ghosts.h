#pragma once
// Blocks whose neighbouring planes came with them, from a file: who needs those asks no other rank.

#include <array>

#include "comm/distributed/local_parts.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

// This rank's part of `block` [N, D, H, W, C], which has `low` and `high` planes more on each side, for a layout. `width`: how
// many planes every rank has there, on all of them the same; fewer only where the volume ends. The result is a constant that
// remembers the block as long as it lives itself.
Tensor with_ghosts(const Tensor& block, const std::array<std::int64_t, 3>& low, const std::array<std::int64_t, 3>& high,
                   const std::array<std::int64_t, 3>& width);

namespace spatial {

// Whether what every rank needs lies in the planes that it has: the same on all ranks.
bool ghosts_cover(const Tensor& x, const WindowedPlan& plan);
// x's local part with what it needs around it: from planes that came with it where they suffice, else from other ranks.
Tensor windowed_input(const Tensor& x, const WindowedPlan& plan);

}  // namespace spatial
}  // namespace mpigrad
