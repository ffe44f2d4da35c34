#pragma once
// Options of a Loader, and the batches that it gives.

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/distributed/grid.h"
#include "models/data/deform.h"
#include "models/data/source.h"
#include "models/data/window.h"

namespace mpigrad::data {

struct LoaderOptions {
  GridPtr grid{};          // none: plain local tensors
  std::int64_t batch = 1;  // of all ranks together
  std::uint64_t seed = 0;
  bool shuffle = false;         // another order each epoch
  bool flips = false;           // each spatial axis with probability 1/2
  bool shifts = false;          // periodic, by any number of cells along each axis
  bool transpositions = false;  // a random order of the spatial axes; for cubes
  std::optional<Crop> crop{};   // batches of windows of the samples, not of whole ones
  std::optional<Elastic> elastic{};
  Intensity intensity{};
  Transform transform = Transform::of_source;
  DType dtype = DType::float32;  // of x
  // Of y: floating-point, or for classes int64, labels of cells the stored integers. None: that, and for numbers that of x.
  std::optional<DType> target_dtype{};
  // So many planes around each rank's block are read, too, wherever it is cut: what the first layers need there no rank is asked
  // for (comm/halos/ghosts.h). Costs the memory of the block and these planes a second time.
  std::int64_t ghosts = 0;
  std::vector<std::int64_t> samples{};  // which ones; empty: all
  bool drop_last = false;               // leave out a last, smaller batch
  int prefetch = 1;                     // batches that are read while one is used; 0: none
  // And put it together, by a thread of its own: where cores have time while a step is computed. None: for a GPU.
  std::optional<bool> assemble_ahead{};
  std::int64_t cache_bytes = -1;  // keep what was read if all of it fits; negative: 1 GiB per node
  // Of each rank, instead of that: ranks keep samples together, each is read from its file once, and comes to where a batch needs
  // it as a message (models/data/loader/store.h). Batches are then asked for by all ranks of the grid, in the same order. 0: not.
  std::int64_t store_bytes = 0;
  // Samples are read by the ranks that share them together, in every epoch: some of them read pieces of whole planes, of so many
  // bytes or more, and send the others their blocks (models/data/loader/store.h). With a store, those that do not fit in it.
  // Nothing is kept for that, and batches are asked for as with a store. Without effect on samples in memory.
  bool collective = false;
  std::int64_t piece_bytes = std::int64_t{4} << 20;
  // Of the batches. To a GPU they are copied while the step before is computed.
  DeviceKind device = current_device();
};

struct Batch {
  // With a grid they have the loader's layouts, of their N.
  Tensor x;  // [N, D, H, W, C], constant
  Tensor y;  // [N, T...], [N] if it is one class each, [N, D, H, W, K...] if each cell has some; constant
};

}  // namespace mpigrad::data
