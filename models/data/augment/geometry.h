#pragma once
// Geometric augmentations: crops, other extents, flips, turns, affine and elastic maps. Cell i of an axis is at coordinate i; its
// box is [i - 1/2, i + 1/2). A map that neither moves nor scales returns exactly its input.

#include <array>

#include "models/data/augment/sample.h"
#include "models/data/data_augment.h"

namespace mpigrad::augment {

// A box [begin, end) of cells, possibly fractional, inside the sample.
struct Window {
  std::array<double, 3> begin{}, end{};
};
Window whole(const Shape& extents);

enum class Filter : std::uint8_t {
  linear,  // the two nearest cells along each axis
  area,    // the mean over the output cell's box where the box is larger than a stored cell, else linear
  cubic,   // the mean, too, else splined(); values may leave the range of those between which they lie
};

// Resamples the window to `to` cells: output i along an axis is at the stored coordinate begin + (i + 1/2) (end - begin) / to -
// 1/2, clamped to the window. With Filter::linear and integer windows: torchvision's resized_crop without antialiasing.
Sample resized(const Sample& x, const Window& window, const Shape& to, Filter filter);
// In double, no result leaves the range of the values that it averages, and values of weight 0 do not contribute.
WideSample resized(const WideSample& x, const Window& window, const Shape& to, Filter filter);

// Labels [D, H, W] resampled to `to` cells: the label with the largest sum of the weights of Filter::area, of equal ones the
// first.
std::vector<std::int32_t> resized_labels(const std::vector<std::int32_t>& labels, const Shape& extents, const Shape& to);

// One axis resampled to `to` cells at the places of resized(), by the cubic B-spline through the values of the whole axis, which
// goes on with its last cells' values: scipy.ndimage.zoom(order = 3, mode = "nearest", grid_mode = True), as nnU-Net resamples.
template <class T>
BasicSample<T> splined(const BasicSample<T>& x, int axis, double begin, double end, std::int64_t to);

// How a sample gets the requested extents.
enum class Fit : std::uint8_t {
  cover,  // scaled by one factor (Filter::area) so that it covers them, then the middle of it; cells are copied where the factor
          // is 1
  pad,    // not scaled: the middle of it, with zeros around
};
Sample fitted(const Sample& x, const Shape& to, Fit fit);
// The window of a sample of `extents` that Fit::cover scales to `to`. A window of `to` cells begins at a whole cell: nothing is
// scaled.
Window cover_window(const Shape& extents, const Shape& to);
// Cells that are copied unchanged: `count` cells along each axis, from `from` in the old extents to `at` in the new ones.
struct Middle {
  std::array<std::int64_t, 3> from{}, at{}, count{};
};
Middle middle_of(const Shape& extents, const Shape& to);

// Flips, exchanges of axes and periodic shifts, as data::Augmentation describes.
Sample permuted(const Sample& x, const data::Augmentation& map);
Sample flipped(const Sample& x, int axis);
// `turns` quarter turns from axis a towards axis b; axes are 0 to 2 for D, H, W: numpy.rot90(x, turns, (a, b)).
Sample turned(const Sample& x, int turns, int a, int b);

// An affine map of the plane about the picture's centre, with y downwards: x_out = A x_in + t with A = R(rotation) [1 tan(shear);
// 0 1] diag(scale_x, scale_y). As in Jaderberg et al. 2015 the map is inverted: pixel p of the output is the input at A^-1 (p -
// t), bilinear between pixels and zero outside.
struct Affine {
  double rotation = 0;  // degrees, clockwise as seen
  double scale_x = 1, scale_y = 1;
  double shear = 0;               // degrees, along x
  double move_x = 0, move_y = 0;  // fractions of the width and the height
};

// A smooth random displacement of every pixel, applied on top of the affine map: uniform cubic B-splines over control points
// `spacing` apart (Rueckert et al. 1999, free-form deformations), whose displacements are normal with deviation `amplitude`; both
// are fractions of the width. Between the points the deviation is about 0.7 amplitude. For handwriting it replaces the smoothed
// noise of Simard et al. 2003.
struct Elastic {
  double amplitude = 0, spacing = 0.25;
  Philox random{};
};

// For pictures: D = 1. If `to` differs from the input's extents, the same map also scales the whole input to them.
Sample warped(const Sample& x, const Affine& affine, const Elastic& elastic, const Shape& to);

}  // namespace mpigrad::augment
