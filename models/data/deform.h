#pragma once
// What happens to the cells of a window at random: they are moved smoothly, and their values change. Every number is keyed by
// (seed, epoch, sample) and the place in the whole window, so each rank computes its own block as any other rank would.

#include <array>
#include <functional>

#include "framework/tensor/random.h"
#include "models/data/data_augment.h"

namespace mpigrad::data {

// A free-form deformation (Rueckert et al. 1999): uniform cubic B-splines over control points `spacing` cells apart, each moved
// by up to `amplitude` cells along each axis, uniformly. No cell is moved further than that, which is how many more planes than
// its own a rank reads. Values are interpolated linearly, 0 outside the sample; labels are those of the nearest cell, else 0.
struct Elastic {
  double amplitude = 0, spacing = 16;
};

// x <- f x + b + n, for values whose mean is about 0: f uniform in [1 - contrast, 1 + contrast], b in [-brightness, brightness],
// n normal in each cell with a deviation uniform in [0, noise].
struct Intensity {
  double contrast = 0, brightness = 0, noise = 0;
  bool any() const { return contrast > 0 || brightness > 0 || noise > 0; }
};

// Of one sample's window in one epoch.
class Deformation {
 public:
  // `window`: its extents; `begin`: where it begins in the sample, of `sample` cells.
  Deformation(const Elastic& elastic, const Philox& random, const Shape& window, const Augmentation& map,
              const std::array<std::int64_t, 3>& begin, const Shape& sample);
  // The cells of the sample that a block of the window may need; possibly none.
  Box needed(const Box& block) const;
  // The block [d, h, w, C] from a region that holds what it needs: `from` is [needed(block), C] of the type To.
  template <class To>
  void values(const Box& block, std::int64_t channels, const To* from, To* to) const;
  // Likewise labels, of any type that has `bytes` bytes.
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
  std::vector<std::array<float, 3>> moves_;  // of the control points
};

// Of a block [d, h, w, C] of a window.
template <class T>
void change_values(const Intensity& intensity, const Philox& random, const Shape& window, const Box& block, std::int64_t channels,
                   T* values);

}  // namespace mpigrad::data
