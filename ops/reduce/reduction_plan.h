#pragma once
// Partition of a reduction into chunks; plain arithmetic on shapes.

#include <algorithm>
#include <vector>

#include "framework/tensor/shape.h"
#include "ops/reduce/reduce_cuda_kernels.h"

namespace mpigrad::cuda {

// Plan for the listed dimensions, ascending. Enough chunks to fill a large GPU, but at least 16 elements per thread.
inline ReductionWalk reduction_of(const Shape& shape, const std::vector<int>& axes) {
  constexpr std::int64_t threads = 256, warp = 32, enough_blocks = 2048;
  const auto strides = shape.strides();
  StridedArrays<1> kept, reduced;
  for (int d = 0; d < shape.rank(); ++d) {
    const bool is_reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
    (is_reduced ? reduced : kept).add(shape[d], {strides[static_cast<std::size_t>(d)]});
  }
  ReductionWalk result;
  result.outputs = kept.elements();
  result.count = reduced.elements();
  kept = kept.collapsed();
  reduced = reduced.collapsed();
  result.kept = StridedWalk<1>(kept);
  result.reduced = StridedWalk<1>(reduced);
  result.kept_is_contiguous = kept.rank > 0 && kept.strides[0][static_cast<std::size_t>(kept.rank - 1)] == 1;
  result.reduced_is_contiguous = reduced.rank == 1 && reduced.strides[0][0] == 1;
  result.chunk = result.count;
  if (result.outputs == 0 || result.count == 0) return result;
  std::int64_t width = 1;
  while (result.kept_is_contiguous && width < warp && width < result.outputs) width *= 2;
  const std::int64_t tiles = (result.outputs + width - 1) / width, least = threads / width * 16;
  const std::int64_t most = std::max<std::int64_t>(1, enough_blocks / tiles);
  const std::int64_t wanted = std::min((result.count + least - 1) / least, most);
  constexpr std::int64_t whole = 16;  // packs of any type
  result.chunk = (result.count + wanted - 1) / wanted;
  if (wanted > 1) result.chunk = (result.chunk + whole - 1) / whole * whole;
  result.chunks = (result.count + result.chunk - 1) / result.chunk;
  return result;
}

}  // namespace mpigrad::cuda
