#pragma once
// Strides and offsets, in elements, of the parts of a tensor that views select. Used inside ops only.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "framework/tensor/shape.h"

namespace mpigrad::ops {

struct StridedBox {
  std::array<std::int64_t, Shape::max_rank> strides{};
  std::int64_t offset = 0;  // offset of its first element
};

// Every `step`-th element from `begin` of a tensor of shape `whole`.
inline StridedBox box_of(const Shape& whole, const Shape& begin, const Shape& step) {
  StridedBox box{.strides = whole.strides()};
  for (int d = 0; d < whole.rank(); ++d) {
    auto& stride = box.strides[static_cast<std::size_t>(d)];
    box.offset += begin[d] * stride;
    stride *= step[d];
  }
  return box;
}

// All elements, backwards along `axes`; the shape has no extent of 0.
inline StridedBox flipped(const Shape& whole, const std::vector<int>& axes) {
  StridedBox box{.strides = whole.strides()};
  for (const int axis : axes) {
    auto& stride = box.strides[static_cast<std::size_t>(axis)];
    box.offset += (whole[axis] - 1) * stride;
    stride = -stride;
  }
  return box;
}

// All elements, with the dimensions in another order.
inline StridedBox permuted(const Shape& whole, const std::vector<int>& order) {
  StridedBox box;
  const auto strides = whole.strides();
  std::transform(order.begin(), order.end(), box.strides.begin(), [&](int d) { return strides[static_cast<std::size_t>(d)]; });
  return box;
}

}  // namespace mpigrad::ops
