#pragma once
// Random changes to the cells of a window: smooth displacements and changes of values. Every number is keyed by (seed, epoch,
// sample) and the place in the whole window, so each rank computes its own block exactly as any other rank would.

#include <array>
#include <functional>

#include "framework/tensor/random.h"
#include "models/data/data_augment.h"

namespace mpigrad::data {

// A free-form deformation (Rueckert et al. 1999): uniform cubic B-splines over control points `spacing` cells apart, each
// displaced along each axis by a uniform random number of up to `amplitude` cells. No cell moves further than that, so a rank
// reads that many planes more than its own. Values are interpolated linearly, with 0 outside the sample; labels are taken from
// the nearest cell, with 0 outside.
struct Elastic {
  double amplitude = 0, spacing = 16;
};

// x <- f x + b + n, for values whose mean is about 0: f uniform in [1 - contrast, 1 + contrast], b in [-brightness, brightness],
// n normal in each cell with a deviation uniform in [0, noise].
struct Intensity {
  double contrast = 0, brightness = 0, noise = 0;
  bool any() const { return contrast > 0 || brightness > 0 || noise > 0; }
};

// The deformation of one sample's window in one epoch.
class Deformation {
 public:
  // `window`: extents of the window; `begin`: where it begins in the sample, whose extents are `sample`.
  Deformation(const Elastic& elastic, const Philox& random, const Shape& window, const Augmentation& map,
              const std::array<std::int64_t, 3>& begin, const Shape& sample);
  // The cells of the sample that a block of the window may need; possibly an empty box.
  Box needed(const Box& block) const;
  // Computes the block [d, h, w, C] from a region that holds the needed cells: `from` is [needed(block), C] of the type To.
  template <class To>
  void values(const Box& block, std::int64_t channels, const To* from, To* to) const;
  // Computes the block of labels, of any type of `bytes` bytes.
  void labels(const Box& block, std::int64_t bytes, const std::byte* from, std::byte* to) const;

 private:
  // f(index of the block's cell, place in the sample)
  template <class F>
  void for_cells(const Box& block, F f) const;

  Elastic elastic_;
  Shape window_, sample_;
  Augmentation map_;
  std::array<std::int64_t, 3> begin_{};
  std::array<std::int64_t, 3> controls_{};   // control points along each axis
  std::vector<std::array<float, 3>> moves_;  // displacements of the control points
};

// Changes the values of a block [d, h, w, C] of a window.
template <class T>
void change_values(const Intensity& intensity, const Philox& random, const Shape& window, const Box& block, std::int64_t channels,
                   T* values);

}  // namespace mpigrad::data
