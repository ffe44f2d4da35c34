#pragma once
// Partition of rows of channels, channels last, into blocks of threads; it depends only on the number of rows, so that sums have
// a fixed order.

#include <type_traits>

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "ops/kernel/fold.cuh"
#include "ops/kernel/map.cuh"

namespace mpigrad::cuda {

// Threads along x handle neighbouring packs of channels, threads along y rows.
inline unsigned tile_width(std::int64_t packs) {
  unsigned width = 1;
  while (width < warp && width < packs) width *= 2;
  return width;
}
inline std::int64_t tiles_of(std::int64_t packs) { return (packs + tile_width(packs) - 1) / tile_width(packs); }

// The part of [groups, rows, packs] that a block of threads handles: V neighbouring channels along x, rows along y, one group.
struct Part {
  std::int64_t pack, begin, end, packs, first;
  __device__ Part(std::int64_t rows, std::int64_t packs, std::int64_t block_rows)
      : pack(static_cast<std::int64_t>(blockIdx.x) * blockDim.x + static_cast<std::int64_t>(threadIdx.x)),
        begin(static_cast<std::int64_t>(blockIdx.y) * block_rows), end(min(rows, begin + block_rows)), packs(packs),
        first(static_cast<std::int64_t>(blockIdx.z) * rows * packs) {}
  __device__ std::int64_t at(std::int64_t row) const { return first + row * packs + pack; }
  // for (rows of this thread) f(row)
  template <class F>
  __device__ void for_rows(const F& f) const {
    for (std::int64_t r = begin + static_cast<std::int64_t>(threadIdx.y); r < end; r += blockDim.y) f(r);
  }
  // The same with N rows at once, all of them loaded before the first is used, then one by one: f(std::integral_constant<int,
  // rows>, row); the next row is row + blockDim.y.
  template <int N, class F>
  __device__ void for_rows_together(const F& f) const {
    const std::int64_t step = blockDim.y;
    std::int64_t r = begin + static_cast<std::int64_t>(threadIdx.y);
    for (; r + (N - 1) * step < end; r += N * step) f(std::integral_constant<int, N>{}, r);
    for (; r < end; r += step) f(std::integral_constant<int, 1>{}, r);
  }
  // The destination of a block's sums, N for each channel: scratch is [groups, blocks, N, channels].
  __device__ double* of_block(double* scratch, int n, int width) const {
    const std::int64_t block = static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
    return scratch + (block * n * packs + pack) * width;
  }
};

// The type in which a few values are added up before they are added in double: float for 16-bit types, where it loses no
// significant digits.
template <class T>
using Few = std::conditional_t<is_half_type<T>, float, double>;
// Rows that a thread loads at once; resident: blocks per multiprocessor for which the registers suffice.
constexpr int rows_together = 4, pairs_together = 2, resident = 3;

// Sums N values for each of V channels over the threads along y; threads with threadIdx.y == 0 have the results.
template <int N, int V>
__device__ inline void add_along_y(double (&values)[N][V]) {
  __shared__ double shared[N * V][block_threads];
  const unsigned own = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < N * V; ++i) shared[i][own] = values[i / V][i % V];
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half)
#pragma unroll
      for (int i = 0; i < N * V; ++i) shared[i][own] += shared[i][own + half * blockDim.x];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < N * V; ++i) values[i / V][i % V] = shared[i][own];
}

// Blocks of rows of packs: at most as many as 132 multiprocessors hold at once, since the sum along y at the end of a block takes
// as long as several of its rows; each thread has 8 rows or more.
inline std::int64_t blocks_of(std::int64_t rows, std::int64_t packs) {
  if (rows == 0 || packs == 0) return 0;
  constexpr std::int64_t at_once = 132 * resident;
  const std::int64_t height = block_threads / tile_width(packs), tiles = tiles_of(packs);
  const std::int64_t most = tiles < at_once ? at_once / tiles : 1;
  const std::int64_t full = (rows + height * 8 - 1) / (height * 8);
  return full < most ? full : most;
}

struct Launch {
  dim3 block, grid;
  std::int64_t packs = 0, blocks = 0, block_rows = 0;
};
inline Launch launch_of(std::int64_t groups, std::int64_t rows, std::int64_t packs) {
  Launch l;
  l.packs = packs;
  const unsigned width = tile_width(packs);
  l.block = dim3(width, block_threads / width);
  const auto wanted = blocks_of(rows, packs);
  l.block_rows = wanted ? (rows + wanted - 1) / wanted : 1;
  l.blocks = (rows + l.block_rows - 1) / l.block_rows;  // none is empty
  l.grid = dim3(static_cast<unsigned>(tiles_of(packs)), static_cast<unsigned>(l.blocks), static_cast<unsigned>(groups));
  return l;
}

// Grid dimensions for the items of each group.
inline dim3 of_groups(std::int64_t items, std::int64_t groups) { return dim3(blocks_for(items), static_cast<unsigned>(groups)); }

template <int V, class T>
auto packs_at(T* pointer) {
  using Packs = std::conditional_t<std::is_const_v<T>, const Pack<std::remove_const_t<T>, V>, Pack<T, V>>;
  return reinterpret_cast<Packs*>(pointer);
}

// Calls f(launch, V) unless there are no rows, with packs of 16 bytes if the number of channels and the addresses allow it.
// Returns the launch.
template <class T, class F, class... P>
Launch over_packs(std::int64_t groups, std::int64_t rows, std::int64_t channels, const F& f, const P*... pointers) {
  const auto run = [&](auto v) {
    const auto l = launch_of(groups, rows, channels / v);
    if (l.blocks > 0) f(l, v);
    return l;
  };
  constexpr int wide = static_cast<int>(16 / sizeof(T));
  if (channels % wide == 0 && (aligned(pointers, 16) && ...)) return run(std::integral_constant<int, wide>{});
  return run(std::integral_constant<int, 1>{});
}

}  // namespace mpigrad::cuda
