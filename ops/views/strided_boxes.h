#pragma once
// Strides and offsets, in elements, of the parts of a tensor that views select. Used inside ops only.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "framework/tensor/shape.h"
#include "framework/tensor/strided.h"
#include "ops/kernel/parts.h"

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

inline constexpr std::int64_t parallel_moves_from = 1 << 14;  // rows times row length

// Moves `extents` elements between two strided places in host memory.
template <class T>
void move_elements(const Shape& extents, const T* from, const std::array<std::int64_t, Shape::max_rank>& from_strides, T* to,
                   const std::array<std::int64_t, Shape::max_rank>& to_strides) {
  // As few and as long rows as possible: rows of the last dimension have one element in a field of one channel.
  StridedArrays<2> all;
  for (int d = 0; d < extents.rank(); ++d)
    all.add(extents[d], {from_strides[static_cast<std::size_t>(d)], to_strides[static_cast<std::size_t>(d)]});
  const auto walk = all.collapsed();
  const auto last = static_cast<std::size_t>(std::max(0, walk.rank - 1));
  const std::int64_t length = walk.rank ? walk.extents[last] : 1;
  const std::int64_t rows = length ? extents.elements() / length : 0;
  const std::int64_t from_step = walk.rank ? walk.strides[0][last] : 1, to_step = walk.rank ? walk.strides[1][last] : 1;
  const std::int64_t piece = 1 << 14, pieces = length / piece + 1;  // of long rows, so that all threads move some
  cpu::for_parts(rows * pieces, rows * length >= parallel_moves_from, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t first = r % pieces * piece, count = std::min(piece, length - first);
      const T* a = from + first * from_step;
      T* b = to + first * to_step;
      auto row = r / pieces;
      for (auto d = last; d-- > 0;) {
        const auto at = row % walk.extents[d];
        row /= walk.extents[d];
        a += at * walk.strides[0][d];
        b += at * walk.strides[1][d];
      }
      if (from_step == 1 && to_step == 1) std::memcpy(b, a, static_cast<std::size_t>(count) * sizeof(T));
      else
        for (std::int64_t i = 0; i < count; ++i) b[i * to_step] = a[i * from_step];
    }
  });
}

}  // namespace mpigrad::ops
