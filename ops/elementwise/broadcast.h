#pragma once
// Broadcasting: shapes are aligned at the right, extents of 1 repeat.

#include <array>
#include <string_view>

#include "framework/tensor/shape.h"
#include "framework/tensor/strided.h"

namespace mpigrad {

// The shape of the result. Error, in the name of `op`: aligned extents that differ, with neither of them 1.
inline Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  for (int i = 1; i <= shorter.rank(); ++i) {
    const auto x = longer[-i], y = shorter[-i];
    require(x == y || x == 1 || y == 1, "[{}] shapes do not broadcast: {} and {}", op, a, b);
    result[-i] = x == 1 ? y : x;
  }
  return result;
}

// Strides of an operand in the shape of the result; 0 along dimensions where it repeats.
inline std::array<std::int64_t, Shape::max_rank> broadcast_strides(const Shape& operand, const Shape& result) {
  const auto own = operand.strides();
  std::array<std::int64_t, Shape::max_rank> strides{};
  const int extra = result.rank() - operand.rank();
  for (int d = extra; d < result.rank(); ++d)
    if (operand[d - extra] != 1) strides[static_cast<std::size_t>(d)] = own[static_cast<std::size_t>(d - extra)];
  return strides;
}

// Arrays with these strides, walked together through `shape`.
template <class... S>
StridedArrays<static_cast<int>(sizeof...(S))> walk_of(const Shape& shape, const S&... strides) {
  StridedArrays<static_cast<int>(sizeof...(S))> result;
  for (int d = 0; d < shape.rank(); ++d) result.add(shape[d], {strides[static_cast<std::size_t>(d)]...});
  return result;
}

}  // namespace mpigrad
