#pragma once
// Flips, periodic shifts and transpositions of a volume, applied while a rank's block is assembled from the stored boxes that map
// to it.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/layout.h"
#include "models/data/source.h"

namespace mpigrad::data {

// Output axis a shows the stored axis axes[a]; output i there is stored (shift + (flip ? n - 1 - i : i)) mod n.
struct Augmentation {
  std::array<int, 3> axes{0, 1, 2};
  std::array<bool, 3> flip{};
  std::array<std::int64_t, 3> shift{};
};

struct AugmentationKinds {
  bool flips = false, shifts = false, transpositions = false;
  bool any() const { return flips || shifts || transpositions; }
};

// Depends only on its arguments.
Augmentation draw_augmentation(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, const Shape& extents,
                               const AugmentationKinds& kinds);

// A stored box that fills part of an output block: the stored cell `box.begin` goes to `start` (relative to the block, per output
// axis), the next cells along the stored axis axes[a] go to start[a] + step[a], start[a] + 2 step[a], ...
struct Piece {
  Box box;
  std::array<int, 3> axes{0, 1, 2};
  std::array<std::int64_t, 3> start{}, step{1, 1, 1};
};
// The pieces of the output block `block`, at most two along each axis; none if the block is empty.
std::vector<Piece> pieces_of(const Box& block, const Shape& extents, const Augmentation& augmentation);

// Values [d, h, w, C] of `region`, in memory at `from`.
struct Stored {
  Box region;
  DType type = DType::uint8;
  const void* from = nullptr;
};
// Writes the piece, which lies in stored.region, into the block [d, h, w, C] of `extents` at `to`, converted to `type` and
// transformed (not of_source). Errors, with the name that `name` returns: log1p of a negative number; a type that is neither
// floating-point nor, with Transform::none, the stored type.
void copy_piece(const Piece& piece, const Stored& stored, const Shape& extents, std::int64_t channels, Transform transform,
                DType type, void* to, const std::function<std::string()>& name);

}  // namespace mpigrad::data
