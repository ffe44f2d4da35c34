#pragma once
// How kernels that go over elements are launched: blocks of 256 threads, as many as fill the GPU several times over, each of
// which strides over the rest. Indices have 64 bits.

#include <cstdint>

#include "framework/cuda/check.h"

namespace mpigrad::cuda {

constexpr int block_threads = 256;
// 132 multiprocessors hold 8 such blocks each; 16 times that evens out their ends.
constexpr std::int64_t max_blocks = 16384;

inline unsigned blocks_for(std::int64_t items) {
  const auto blocks = (items + block_threads - 1) / block_threads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > max_blocks ? max_blocks : blocks);
}

__device__ inline std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + static_cast<std::int64_t>(threadIdx.x);
}
__device__ inline std::int64_t grid_stride() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

}  // namespace mpigrad::cuda
