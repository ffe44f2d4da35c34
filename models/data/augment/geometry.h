#pragma once
// Where values come from: crops, other extents, flips, turns, affine and elastic maps. Cell i of an axis is at coordinate i; its
// box is [i - 1/2, i + 1/2). What neither moves nor scales gives exactly its input.

#include <array>

#include "models/data/augment/sample.h"
#include "models/data/data_augment.h"

namespace mpigrad::augment {

// A box [begin, end) of cells, fractions allowed, inside the sample.
struct Window {
  std::array<double, 3> begin{}, end{};
};
Window whole(const Shape& extents);

enum class Filter : std::uint8_t {
  linear,  // the two nearest cells along each axis
  area,    // the mean over the output cell's box where that is larger than a stored cell, else linear
};

// The window at `to` cells: output i along an axis is the stored coordinate begin + (i + 1/2) (end - begin) / to - 1/2, held
// inside the window. With Filter::linear and integer windows: torchvision's resized_crop without antialiasing.
Sample resized(const Sample& x, const Window& window, const Shape& to, Filter filter);
// In double no result leaves the range of the values that it is a mean of, and values of weight 0 have no part in it.
WideSample resized(const WideSample& x, const Window& window, const Shape& to, Filter filter);

// How a sample gets extents that it does not have.
enum class Fit : std::uint8_t {
  cover,  // scaled by the one factor (Filter::area) that makes it cover them, then the middle of it; cells where that is 1
  pad,    // as it is: the middle of it, zeros around
};
Sample fitted(const Sample& x, const Shape& to, Fit fit);
// What of a sample of `extents` Fit::cover scales to `to`. A window of `to` cells begins at a cell: nothing is scaled.
Window cover_window(const Shape& extents, const Shape& to);
// Cells that go where they are, without change: `count` cells along each axis, from `from` of the old to `at` of the new extents.
struct Middle {
  std::array<std::int64_t, 3> from{}, at{}, count{};
};
Middle middle_of(const Shape& extents, const Shape& to);

// Flips, exchanges of axes and periodic shifts, as data::Augmentation describes them.
Sample permuted(const Sample& x, const data::Augmentation& map);
Sample flipped(const Sample& x, int axis);
// `turns` quarter turns from axis a towards axis b, 0 to 2 for D, H, W: numpy.rot90(x, turns, (a, b)).
Sample turned(const Sample& x, int turns, int a, int b);

// An affine map of the plane about the picture's centre, with y downwards: x_out = A x_in + t with
// A = R(rotation) [1 tan(shear); 0 1] diag(scale_x, scale_y). As in Jaderberg et al. 2015 the output is what asks: pixel p of the
// output is the input, bilinear between pixels and zero outside, at A^-1 (p - t).
struct Affine {
  double rotation = 0;  // degrees, clockwise as seen
  double scale_x = 1, scale_y = 1;
  double shear = 0;               // degrees, along x
  double move_x = 0, move_y = 0;  // in parts of the width and the height
};

// A smooth random displacement of every pixel on top of it: uniform cubic B-splines over control points `spacing` apart
// (Rueckert et al. 1999, free-form deformations), whose displacements are normal with deviation `amplitude`; both in parts of the
// width. Between the points the deviation is about 0.7 amplitude. For handwriting the place of Simard et al. 2003's smoothed
// noise.
struct Elastic {
  double amplitude = 0, spacing = 0.25;
  Philox random{};
};

// Pictures: D = 1. Extents of the output may differ from the input's: then the whole input is scaled to them by the same map.
Sample warped(const Sample& x, const Affine& affine, const Elastic& elastic, const Shape& to);

}  // namespace mpigrad::augment
