#pragma once
// Plans batches: the samples of each rank in each step, their augmentation, and the cells that are read of them. Not installed.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "models/data/loader/fetch.h"
#include "models/data/loader/options.h"
#include "models/data/loader/steps.h"

namespace mpigrad::data {

// Generator of the steps of augmentation for a sample in an epoch.
Philox random_of(const LoaderOptions& options, std::int64_t epoch, std::int64_t sample);

class Schedule {
 public:
  // Errors: those of Steps; windows, augmentation, types of targets and grids that do not fit the source. `options` must outlive
  // it.
  Schedule(SourcePtr source, const LoaderOptions& options);

  const Steps& steps() const { return steps_; }
  // Plans a step, with its samples in the order of the epoch: this rank's, or with `all` those of the whole batch.
  FetchPtr plan(std::int64_t epoch, const std::vector<std::int64_t>& order, std::int64_t step, bool all);

  struct Layouts {
    LayoutPtr x, y;
  };
  const Layouts& layouts(std::int64_t n);  // for a batch of n samples; none without a grid
  Shape shape(std::int64_t n) const { return {n, window_[0], window_[1], window_[2], source_->channels()}; }
  // Shape of the targets of n samples, and with targets per cell of the cells in `box`. With one class each: [N].
  Shape target_shape(std::int64_t n, const Shape& box) const;
  DType target_dtype() const { return target_dtype_; }

  const Shape& window() const { return window_; }  // [D, H, W] of a batch's samples
  const Box& block() const { return block_; }      // this rank's block of [D, H, W]
  const Box& spatial() const { return spatial_; }  // the block with its ghost planes: what is read and assembled
  const std::array<std::int64_t, 3>& ghost_planes() const { return width_; }  // the same on all ranks
  // True if a sample's cells outside the block may be needed.
  bool moves_cells() const { return kinds_.any() || !options_.augment.steps().empty(); }
  // The cells of the window that a rank reads for its block: more where changes of values read around it.
  Box reached(const Fetch::Item& item, Box block) const;
  // The pieces of what is read for a block of a sample's window: of this rank, or of another rank, with its ghost planes.
  std::vector<Piece> pieces(const Fetch::Item& item, const Box& of) const;
  std::vector<Piece> pieces_of_rank(const Fetch::Item& item, const LayoutPtr& layout, int rank) const;

 private:
  Box with_ghost_planes(Box block) const;
  // A sample with its augmentation in an epoch, for any rank.
  Fetch::Item drawn(std::int64_t epoch, std::int64_t sample);

  SourcePtr source_;
  const LoaderOptions& options_;
  Steps steps_;
  AugmentationKinds kinds_;
  DType target_dtype_ = DType::float32;
  Shape window_;
  std::optional<ForegroundCells> foreground_;
  std::optional<SampleTones> tones_;
  Box block_, spatial_;
  std::array<std::int64_t, 3> width_{};
  std::map<std::int64_t, Layouts> layouts_;  // by the batch's N
};

}  // namespace mpigrad::data
