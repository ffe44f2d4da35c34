#pragma once
// Batches for training, each rank's own block of them.
//
//   data::Loader train("universes/", {.grid = grid, .batch = 8, .seed = 1, .shuffle = true, .flips = true, .shifts = true});
//   for (auto [x, y] : train.epoch(0)) ...
//
// Order and augmentation are drawn from (seed, epoch, sample) alone, so a batch is the same for every grid, bit for bit.

#include <filesystem>
#include <optional>

#include "comm/distributed/grid.h"
#include "models/data/data_batches.h"
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
  // it as a message (models/data/store.h). Batches are then asked for by all ranks of the grid, in the same order. 0: not.
  std::int64_t store_bytes = 0;
  // Samples are read by the ranks that share them together, in every epoch: some of them read pieces of whole planes, of so many
  // bytes or more, and send the others their blocks (models/data/store.h). With a store, those that do not fit in it. Nothing is
  // kept for that, and batches are asked for as with a store. Without effect on samples in memory.
  bool collective = false;
  std::int64_t piece_bytes = std::int64_t{4} << 20;
  // Of the batches. To a GPU they are copied while the step before is computed.
  DeviceKind device = current_device();
};

struct Batch {
  Tensor x;  // [N, D, H, W, C], constant, with layout() of its N
  Tensor y;  // [N, T...], [N] if it is one class each, [N, D, H, W, K...] if each cell has some; constant, with target_layout()
};

class Loader {
 public:
  // Errors: a subset that names samples that do not exist, no batch at all, more ranks along a spatial axis than planes; samples
  // that differ in their extents without a crop; shifts of windows, or with an elastic deformation.
  Loader(SourcePtr source, LoaderOptions options);
  // Of universes: a folder, or one file.
  Loader(const std::filesystem::path& path, LoaderOptions options);

  const Source& source() const;
  const LoaderOptions& options() const;
  std::int64_t samples() const;  // per epoch
  std::int64_t steps() const;    // batches per epoch
  Shape shape() const;           // global [batch, D, H, W, C], of windows where samples are cropped
  // Of a full batch: samples split over the first axis of the grid, planes over the others, with them the targets of cells. None
  // without a grid.
  LayoutPtr layout() const;
  LayoutPtr target_layout() const;

  // Samples that the store keeps by now, on all ranks, those for which it has room, of how many, and the bytes of them here.
  struct InStore {
    std::int64_t samples = 0, room = 0, of = 0, bytes = 0;
  };
  InStore stored() const;

  // The samples of step `step` of epoch `epoch`, in order.
  std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t step) const;
  // One batch by itself, without reading ahead.
  Batch batch(std::int64_t epoch, std::int64_t step) const;

  // The batches of an epoch from `first` on, in order, for one pass. Not collective, but every rank gets the same number of them.
  // A failed read throws where its batch is asked for.
  Batches<Batch> epoch(std::int64_t epoch, std::int64_t first = 0) const;

  struct Fetch;  // a batch that is being read
  struct State;

 private:
  std::shared_ptr<State> state_;
};

// Indices 0 ... n - 1 dealt at random into two lists, each sorted; the same for the same arguments. The test list has
// round(fraction n) of them, but at least one, and leaves at least one.
struct Split {
  std::vector<std::int64_t> train, test;
};
Split split_train_test(std::int64_t n, double fraction, std::uint64_t seed);

}  // namespace mpigrad::data
