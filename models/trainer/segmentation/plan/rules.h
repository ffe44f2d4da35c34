#pragma once
// A plan from the data: spacing, window, levels and batch of a training, by the published rules of nnU-Net (Isensee et al. 2021,
// 2024), with the memory that this library predicts.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "framework/tensor/shape.h"
#include "models/data/sources/normalised.h"
#include "models/trainer/segmentation/segmentation.h"

namespace mpigrad::trainer::segmenting {

using Spacing = std::array<double, 3>;  // mm along D, H, W

// The numbers of a data set from which a plan is made.
struct Fingerprint {
  std::vector<Shape> extents{};     // of each volume, [D, H, W] in the training's orientation
  std::vector<Spacing> spacings{};  // of each volume
  bool spaced = true;               // false: files say no spacing, and every one is 1
  std::int64_t channels = 1, classes = 2;
  // Of each channel, over the cells of classes above 0 of all volumes, each volume with the same weight: 0.5 and 99.5
  // percentiles, mean and deviation.
  std::vector<data::IntensityScale> intensities{};
  // The median over volumes of the part of a volume that the smallest box around its cells that are not 0 takes.
  double nonzero = 1;
};

struct PlanRules {
  // Bytes that a training step with this window, these levels and this batch needs on the rank that needs most.
  std::function<std::int64_t(const Shape& window, const NetworkPlan& network, std::int64_t batch)> bytes;
  std::int64_t most_bytes = 0;
  std::int64_t filters = 32, most_filters = 320;  // of the finest level, doubled from level to level; the most of a level
  std::int64_t least_batch = 2;                   // and batches are multiples of `batch_step`
  std::int64_t batch_step = 1;
  double most_covered = 0.05;  // part of all cells that a batch has at most, if it is above the least batch
  std::optional<Spacing> spacing{};
  std::optional<Shape> window{};
  std::optional<std::int64_t> batch{};
};

struct Plan {
  Spacing spacing{1, 1, 1};
  std::array<double, 3> median{};  // cells of the median volume at this spacing
  Shape window{};
  NetworkPlan network{};
  std::int64_t batch = 0, bytes = 0;
  bool batch_dice = false;  // the window has less than a quarter of the cells of the median volume
};

// The median spacing of each axis. Where the coarsest axis is more than three times as coarse as both others and has less than a
// third of their cells, it gets the 10th percentile of its spacings, but at least the other axes' spacing.
Spacing target_spacing(const Fingerprint& fingerprint);

// Strides and kernels of the levels for a window of cells of this spacing. Each further level halves the axes that have at least
// 8 cells and whose spacing is less than twice the finest one of these, as long as there are two such axes, or one of 12 cells.
// Kernels are 1 along an axis until its spacing is less than twice the finest one, then 3; 3 at the coarsest level.
struct Levels {
  std::vector<Triple> strides{Triple(1)}, kernels{};
  Triple divisor = 1;  // the window is a multiple of it
};
Levels levels_of(const Spacing& spacing, const std::array<double, 3>& window);

// The window begins with 256^3 cells in the shape of a cube in mm, at most the median volume, padded so that it can be halved.
// The axis that has most of the median volume shrinks until the least batch fits. Then the batch grows while it fits and has at
// most `most_covered` of all cells. Error: nothing fits.
Plan plan_of(const Fingerprint& fingerprint, const PlanRules& rules);

}  // namespace mpigrad::trainer::segmenting
