#pragma once
// Loops over operands that broadcast, along runs of the innermost dimension, with the threads of the CPU.

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/elementwise/broadcast.h"
#include "ops/kernel/parts.h"

namespace mpigrad::ops {

inline constexpr std::int64_t parallel_from = 1 << 15;  // elements; below, starting threads costs more than it saves

inline constexpr std::int64_t row_piece = 1 << 13;  // elements of a long row that a thread takes at once

// Merges dimensions into as few as the operands allow, at least one: a channel vector and [N, D, H, W, C] need two.
template <class... S>
auto rows_of(const Shape& result, const S&... strides) {
  auto walk = walk_of(result, strides...).collapsed();
  if (walk.rank == 0) walk.add(1, {});
  return walk;
}
template <int N>
std::size_t innermost(const StridedArrays<N>& walk) {
  return static_cast<std::size_t>(walk.rank - 1);
}

// Calls row(offset in the result, offsets of the operands, elements) for runs of the innermost dimension.
template <int N, class Row>
void for_each_row(const StridedArrays<N>& walk, Row&& row) {
  const auto inner = innermost(walk);
  const std::int64_t length = walk.extents[inner];
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < inner; ++d) rows *= walk.extents[d];
  const std::int64_t pieces = (length + row_piece - 1) / row_piece;
  cpu::for_parts(rows * pieces, rows * length >= parallel_from, [&](std::int64_t low, std::int64_t high) {
    for (std::int64_t task = low; task < high; ++task) {
      const std::int64_t r = pieces == 1 ? task : task / pieces, begin = (task - r * pieces) * row_piece;
      std::array<std::int64_t, N> offsets{};
      for (std::size_t i = 0; i < N; ++i) offsets[i] = begin * walk.strides[i][inner];
      std::int64_t rest = r;
      for (std::size_t d = inner; d-- > 0;) {
        const auto index = d == 0 ? rest : rest % walk.extents[d];
        if (d > 0) rest /= walk.extents[d];
        for (std::size_t i = 0; i < N; ++i) offsets[i] += index * walk.strides[i][d];
      }
      row(r * length + begin, offsets, std::min(row_piece, length - begin));
    }
  });
}

}  // namespace mpigrad::ops
