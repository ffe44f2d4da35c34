#pragma once
// Scores of segmentation: overlap, distance of surfaces, and the cleaning before them. Plain numbers of one rank; what is spread
// over ranks is gathered first. Labels are integers [D, H, W], row-major, 0 the background.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "framework/tensor/shape.h"

namespace mpigrad::segmentation {

// Cells of one class: in both volumes, in the predicted one, in the true one. Those of several volumes may be added up.
struct ClassCounts {
  std::int64_t both = 0, predicted = 0, truth = 0;
};
// One for each class, from cells of any number of dimensions. Errors: different lengths, a label outside [0, classes).
std::vector<ClassCounts> count_classes(std::span<const std::int32_t> truth, std::span<const std::int32_t> predicted,
                                       std::int64_t classes);
// 2 both / (predicted + truth) (Dice 1945), in [0, 1]: 0 where the class is in one volume only, none where it is in neither.
std::optional<double> dice(const ClassCounts& counts);

// The 95th percentile Hausdorff distance of the cells with this label, in the unit of `spacing` (mm): how far a cell is from the
// next one along D, H and W. A surface is the cells of which one of the 6 neighbours has another label or is outside the volume.
// For each direction the percentile, interpolated linearly as numpy does, of the exact distances from the centres of one's
// surface cells to the nearest of the other's; then the larger of the two, as MONAI has it (MedPy takes one percentile of both
// together). None where one of the two has no such cell. Linear in the cells of the box around both (Felzenszwalb and
// Huttenlocher 2012). Errors: labels for other cells than `extents`, which is [D, H, W]; a spacing that is not a positive number.
std::optional<double> hausdorff95(std::span<const std::int32_t> truth, std::span<const std::int32_t> predicted,
                                  const Shape& extents, std::int32_t label, const std::array<double, 3>& spacing);

// Labels [D, H, W] where of each class but the background only the largest 26-connected component stays, the one that comes first
// in row-major order where several are as large; all other cells become 0. Linear in the cells.
// Errors: labels for other cells than `extents`, a label outside [0, classes).
std::vector<std::int32_t> largest_components(std::span<const std::int32_t> labels, const Shape& extents, std::int64_t classes);

}  // namespace mpigrad::segmentation
