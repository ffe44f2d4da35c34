#pragma once
// Options of a Loader, and its batches.

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/distributed/grid.h"
#include "models/data/augment/recipe.h"
#include "models/data/source.h"
#include "models/data/window.h"

namespace mpigrad::data {

struct LoaderOptions {
  GridPtr grid{};          // none: plain local tensors
  std::int64_t batch = 1;  // samples of all ranks together
  std::uint64_t seed = 0;
  bool shuffle = false;         // another order each epoch
  bool flips = false;           // of each spatial axis with probability 1/2
  bool shifts = false;          // periodic, by any number of cells along each axis
  bool transpositions = false;  // a random order of the spatial axes; for cubes
  std::optional<Crop> crop{};   // batches of windows of the samples, not of whole samples
  // Steps for windows (augment::Recipe::require_windows): first the steps that move cells, in one resampling, then those that
  // change values. If one changes values, all compute in float32. Keyed by seed, epoch, sample and place in the window. For
  // contrast and gamma each rank reads a sample once as a whole.
  augment::Recipe augment{};
  Transform transform = Transform::of_source;
  DType dtype = DType::float32;  // type of x
  // Type of y: floating-point; for classes int64; for labels of cells the stored integers. None: int64 for classes, the stored
  // integers for labels of cells, x's type for numbers.
  std::optional<DType> target_dtype{};
  // Number of ghost planes read around each rank's block, on every side where it is split, so that the first layers need no halo
  // exchange (comm/halos/ghosts.h). Costs the memory of the block and these planes a second time.
  std::int64_t ghosts = 0;
  std::vector<std::int64_t> samples{};  // indices of the samples to use; empty: all
  bool drop_last = false;               // leave out a last, smaller batch
  // An epoch passes so often over the samples, with another order, other windows and other changes in each pass: the batches of
  // as many epochs of one pass.
  std::int64_t passes = 1;
  int prefetch = 1;  // batches that are read while one is used; 0: none
  // Also assembles them ahead, on a thread of its own; for cores that are idle while a step is computed. None: only for a GPU.
  std::optional<bool> assemble_ahead{};
  std::int64_t cache_bytes = -1;  // keep read data if all of it fits; negative: 1 GiB per node
  // Bytes of the store on each rank, used instead of the cache: ranks keep samples together; each sample is read from its file
  // once and is sent to the ranks whose batches need it (models/data/loader/store.h). Then all ranks of the grid must ask for
  // batches in the same order. 0: no store.
  std::int64_t store_bytes = 0;
  // Collective reading: the ranks that share a sample read it together, in every epoch. Some of them read pieces of whole planes,
  // of at least piece_bytes, and send the others their blocks (models/data/loader/store.h). With a store, this applies to samples
  // that do not fit in it. Nothing is kept, and the order of batches must be as with a store. No effect on samples in memory.
  bool collective = false;
  std::int64_t piece_bytes = std::int64_t{4} << 20;
  // Where the batches are. Copies to a GPU overlap with the previous step.
  DeviceKind device = current_device();
};

struct Batch {
  // With a grid they have the loader's layouts, for their N.
  Tensor x;  // [N, D, H, W, C], constant
  Tensor y;  // [N, T...], [N] for one class each, [N, D, H, W, K...] for targets per cell; constant
};

}  // namespace mpigrad::data
