#pragma once
// Distributed tensors with global elements that every rank can compute.

#include <algorithm>

#include "comm/distributed/grid.h"
#include "framework/tensor/random.h"
#include "ops/random/random.h"
#include "ops/views/views.h"
#include "tests/support/gradient_check.h"

namespace mpigrad::testing {

// Uniform in [-1, 1), keyed by seed and global index. Without a layout: the whole tensor.
inline Tensor global_tensor(const Shape& shape, std::uint64_t seed, const LayoutPtr& layout = {}, DType dtype = DType::float64) {
  return random_uniform(shape, Philox{.key = seed, .stream = 9}, -1, 1, dtype, layout);
}

// This rank's block of a global tensor.
inline Tensor part_of(const Tensor& global, const LayoutPtr& layout) {
  Untaped scope;
  const auto box = layout->box();
  return slice(global.without_layout(), box.begin, box.end).with_layout(layout);
}

// Random numbers from a seed; every rank draws the same ones.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : philox_{.key = seed, .stream = 5} {}
  std::int64_t operator()(std::int64_t first, std::int64_t last) {  // both bounds are included
    return first + static_cast<std::int64_t>(philox_.below(counter_++, static_cast<std::uint64_t>(last - first + 1)));
  }
  // Cuts n elements into parts of random size; parts may be empty.
  std::vector<std::int64_t> cuts(std::int64_t n, int parts) {
    std::vector<std::int64_t> result{0, n};
    for (int i = 1; i < parts; ++i) result.push_back((*this)(0, n));
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  Philox philox_;
  std::uint64_t counter_ = 0;
};

// Cuts each split dimension anew, at random.
inline LayoutPtr with_random_cuts(LayoutPtr layout, Dice& dice) {
  for (int d = 0; d < layout->global.rank(); ++d)
    if (const int axis = layout->axis_of(d); axis >= 0)
      layout = with_cuts(layout, d, dice.cuts(layout->global[d], layout->grid->extents[static_cast<std::size_t>(axis)]));
  return layout;
}

}  // namespace mpigrad::testing
