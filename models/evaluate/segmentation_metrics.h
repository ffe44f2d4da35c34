#pragma once
// Scores of segmentation: overlap, surface distance, and the cleaning of labels before them. Works on numbers of one rank; gather
// distributed volumes first. Labels are integers [D, H, W], row-major, 0 the background.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "framework/tensor/shape.h"

namespace mpigrad::segmentation {

// Numbers of cells of one class: in both volumes, in the predicted one, in the true one. Counts of several volumes may be added.
struct ClassCounts {
  std::int64_t both = 0, predicted = 0, truth = 0;
};
// Counts for each class, from cells of any number of dimensions. Errors: different lengths, a label outside [0, classes).
std::vector<ClassCounts> count_classes(std::span<const std::int32_t> truth, std::span<const std::int32_t> predicted,
                                       std::int64_t classes);
// 2 both / (predicted + truth) (Dice 1945), in [0, 1]: 0 if the class is in one volume only, none if it is in neither.
std::optional<double> dice(const ClassCounts& counts);

// The 95th percentile Hausdorff distance of the cells with this label, in the unit of `spacing` (mm), the distance between
// neighbouring cells along D, H and W. A surface consists of the cells that have one of their 6 neighbours with another label or
// outside the volume. For each direction it takes the percentile, interpolated linearly like numpy, of the exact distances from
// the centres of one volume's surface cells to the nearest of the other's; then the larger of the two, like MONAI (MedPy takes
// one percentile of both together). None if one volume has no such cell. Linear in the cells of the box around both (Felzenszwalb
// and Huttenlocher 2012). Errors: labels for other cells than `extents`, which is [D, H, W]; a spacing that is not a positive
// number.
std::optional<double> hausdorff95(std::span<const std::int32_t> truth, std::span<const std::int32_t> predicted,
                                  const Shape& extents, std::int32_t label, const std::array<double, 3>& spacing);

// Labels [D, H, W] that keep only the largest 26-connected component of each class except the background, the first in row-major
// order if several are equally large; all other cells become 0. Linear in the cells.
// Errors: labels for other cells than `extents`, a label outside [0, classes).
std::vector<std::int32_t> largest_components(std::span<const std::int32_t> labels, const Shape& extents, std::int64_t classes);

}  // namespace mpigrad::segmentation
