#pragma once
// Moves the cells of a window: turns, scales and smooth random displacements, keyed by the place in the whole window, so that
// each rank computes its own block exactly as any other rank would.

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "framework/tensor/random.h"
#include "models/data/data_augment.h"

namespace mpigrad::data {

// A free-form deformation (Rueckert et al. 1999): uniform cubic B-splines over control points `spacing` cells apart, each
// displaced along each axis by a uniform random number of up to `amplitude` cells. No cell moves further than that, so a rank
// reads that many planes more than its own.
struct Elastic {
  double amplitude = 0, spacing = 16;
};

// The places from which a window's cells are taken, in one resampling: cell i shows the place c + M (i - c + e(i)), with c the
// middle of the window and e an elastic displacement. Outside the sample values and labels are 0.
struct Motion {
  Shape window{};                                                                  // [D, H, W]
  std::array<std::array<double, 3>, 3> matrix{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};  // M
  std::array<bool, 3> flip{};  // mirrors the window along these axes afterwards; without interpolation
  std::optional<Elastic> elastic{};
  Philox random{};        // of the elastic displacement
  bool cubic = false;     // values: Catmull and Rom's cubic (1974) between four cells along each axis; else linear between two
  bool by_score = false;  // labels: the label with the largest sum of linear weights (ignored cells are a label); else nearest

  bool linear() const;                                    // M is not the identity
  bool resamples() const { return linear() || elastic; }  // more than flips
};

// The deformation of one sample's window in one epoch.
class Deformation {
 public:
  // `map`: flips and exchanges of the window's axes, which include those of the motion; `begin`: where the window begins in the
  // sample, whose extents are `sample`.
  Deformation(const Motion& motion, const Augmentation& map, const std::array<std::int64_t, 3>& begin, const Shape& sample);
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

  // Values between cells, with 0 in cells that are outside.
  template <class To>
  void linear_values(const Box& block, std::int64_t channels, const To* from, To* to) const;
  template <class To>
  void cubic_values(const Box& block, std::int64_t channels, const To* from, To* to) const;

  Motion motion_;
  Shape sample_;
  Augmentation map_;
  std::array<std::int64_t, 3> begin_{};
  std::array<std::int64_t, 3> controls_{};   // control points along each axis
  std::vector<std::array<float, 3>> moves_;  // displacements of the control points
};

}  // namespace mpigrad::data
