#pragma once
// Launches of kernels over [rows, items]: rows along the grid, items of a row along the threads. Most of an index is then
// computed once per row, and the rest in 32 bits.

#include "framework/cuda/launch.cuh"

namespace mpigrad::cuda {

struct RowGrid {
  dim3 grid, block;
};
inline RowGrid row_grid(std::int64_t rows, std::int64_t items) {
  constexpr unsigned threads = 256;
  unsigned x = 1;
  while (x < threads && x < items) x *= 2;
  const unsigned y = threads / x;
  const std::int64_t across = (rows + y - 1) / y, along = (items + x - 1) / x;
  constexpr std::int64_t most_across = 1 << 20, most_along = 65535;
  return {dim3(static_cast<unsigned>(across < most_across ? across : most_across),
               static_cast<unsigned>(along < most_along ? along : most_along)),
          dim3(x, y)};
}

// for (row of this thread) for (item of this thread) f(row, item)
template <class F>
__device__ inline void for_rows(std::int64_t rows, unsigned items, const F& f) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  for (std::int64_t row = first; row < rows; row += static_cast<std::int64_t>(gridDim.x) * blockDim.y)
    for (unsigned item = blockIdx.y * blockDim.x + threadIdx.x; item < items; item += gridDim.y * blockDim.x) f(row, item);
}

inline bool aligned_to(const void* pointer, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0; }

}  // namespace mpigrad::cuda
