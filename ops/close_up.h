#pragma once
// The order in which parts of rows are moved together within the memory of the rows.

#include <algorithm>
#include <cstdint>

#include "framework/tensor/shape.h"

namespace mpigrad::ops {

// A range in one dimension of `whole`, of shape `part`, as parts of rows: `count` rows of `stride` items, `length` of them in the
// range; `item` elements each.
struct RowParts {
  int axis = 0;
  std::int64_t count = 0, stride = 0, length = 0, item = 0;
};
inline RowParts rows_of(const Shape& whole, const Shape& part) {
  int axis = 0;
  while (axis < whole.rank() - 1 && part[axis] == whole[axis]) ++axis;
  return {axis, whole.elements(0, axis), whole[axis], part[axis], whole.elements(axis + 1, whole.rank())};
}

// Of each of `rows` rows, `stride` elements apart, `length` elements from `at` on shall lie behind each other from the beginning of
// the first row on. Calls move(begin, end) for ranges of rows, one range after the other; the rows of one may be moved at once, since
// none goes where another of them comes from. One range that is a single row may overlap itself. Ranges grow by stride / length.
template <class F>
void close_up(std::int64_t rows, std::int64_t stride, std::int64_t at, std::int64_t length, F&& move) {
  if (length == 0 || length == stride) return;
  for (std::int64_t begin = 0, end = 0; begin < rows; begin = end) {
    end = std::min(rows, std::max(begin + 1, (begin * stride + at) / length));
    move(begin, end);
  }
}

}  // namespace mpigrad::ops
