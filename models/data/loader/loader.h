#pragma once
// Batches for training; each rank gets its own block of each batch.
//
//   data::Loader train("universes/", {.grid = grid, .batch = 8, .seed = 1, .shuffle = true, .flips = true, .shifts = true});
//   for (auto [x, y] : train.epoch(0)) ...
//
// Order and augmentation depend only on (seed, pass, sample), so a batch is the same for every grid, bit for bit. An epoch is one
// pass over the samples, or options().passes of them.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "models/data/data_batches.h"
#include "models/data/loader/options.h"

namespace mpigrad::data {

class Loader {
 public:
  // Errors: a subset with samples that do not exist, not even one batch, more ranks along a spatial axis than planes; samples
  // that differ in their extents without a crop; shifts of windows, or shifts with steps that move cells.
  Loader(SourcePtr source, LoaderOptions options);
  // A loader of universes: a folder, or one file.
  Loader(const std::filesystem::path& path, LoaderOptions options);

  const Source& source() const;
  const LoaderOptions& options() const;
  std::int64_t samples() const;  // per epoch
  std::int64_t steps() const;    // batches per epoch
  Shape shape() const;           // global [batch, D, H, W, C]; with a crop, D, H, W of the windows
  // Layouts of a full batch: samples split over the first axis of the grid, planes over the others, and targets of cells
  // likewise. Without a grid a plain_layout(): net.build(loader.layout()) is right in both cases.
  LayoutPtr layout() const;
  LayoutPtr target_layout() const;

  // Counts of the store on all ranks: samples kept so far, samples for which there is room, all samples; and the bytes kept on
  // this rank.
  struct InStore {
    std::int64_t samples = 0, room = 0, of = 0, bytes = 0;
  };
  InStore stored() const;

  // The samples of step `step` of epoch `epoch`, in order.
  std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t step) const;
  // One batch, without reading ahead.
  Batch batch(std::int64_t epoch, std::int64_t step) const;

  // The batches of an epoch from `first` on, in order, for one pass. Not collective, but every rank gets the same number of
  // batches. A read error is thrown where its batch is asked for.
  Batches<Batch> epoch(std::int64_t epoch, std::int64_t first = 0) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mpigrad::data
