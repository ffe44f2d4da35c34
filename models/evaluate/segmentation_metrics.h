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

// both / (predicted + truth - both) (Jaccard 1901), "IoU", in [0, 1]; 0 and none as for Dice.
std::optional<double> jaccard(const ClassCounts& counts);

struct SurfaceAgreement {
  // The larger of both directions' distances, in mm, within which 95 % of the area of one surface lie from the other.
  double hausdorff95 = 0;
  // Of the area of both surfaces, the part that lies within the tolerance of the other one: normalised surface Dice (Nikolov et
  // al. 2018, arXiv 1809.04430).
  double within_tolerance = 0;
};
// How far the surfaces of the cells with this label are from each other. A surface consists of elements at the corners of cells,
// each with its area, and distances are those between elements. `spacing`: mm between neighbouring cells along D, H and W;
// `tolerance` in mm. If the class is in one volume only, the distance is the volume's diagonal and the part is 0, so that a
// prediction is never better without the class; none if it is in neither. Linear in the cells of the box around both (distances
// by Felzenszwalb and Huttenlocher 2012). Errors: labels for other cells than `extents`, which is [D, H, W]; a spacing that is
// not a positive number; a negative tolerance.
std::optional<SurfaceAgreement> surface_agreement(std::span<const std::int32_t> truth, std::span<const std::int32_t> predicted,
                                                  const Shape& extents, std::int32_t label, const std::array<double, 3>& spacing,
                                                  double tolerance = 1);

// Labels [D, H, W] that keep only the largest 26-connected component of each class except the background, the first in row-major
// order if several are equally large; all other cells become 0. Linear in the cells. The second function does so with the classes
// of `chosen` only. Errors: labels for other cells than `extents`, a label outside [0, classes).
std::vector<std::int32_t> largest_components(std::span<const std::int32_t> labels, const Shape& extents, std::int64_t classes);
std::vector<std::int32_t> largest_components(std::span<const std::int32_t> labels, const Shape& extents, std::int64_t classes,
                                             std::span<const std::int64_t> chosen);

}  // namespace mpigrad::segmentation
