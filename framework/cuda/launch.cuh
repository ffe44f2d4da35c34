#pragma once
// Launches kernels. Kernels over elements use blocks of 256 threads, enough blocks to fill the GPU several times, and a
// grid-stride loop. Indices have 64 bits.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "framework/cuda/check.h"

namespace mpigrad::cuda {

// Runs kernel(arguments...) on `stream`, without dynamic shared memory. A kernel that cannot start throws an error with this
// name; a failure while it runs shows up at a later call. All launches use this function: without nvcc's <<<>>>, any C++ compiler
// compiles the kernels, and tests run them on a CPU.
template <class... P>
void launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, Stream stream, std::type_identity_t<P>... arguments) {
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = grid, configuration.blockDim = block, configuration.stream = native(stream);
  static_cast<void>(cudaLaunchKernelEx(&configuration, kernel, arguments...));
  check(cudaGetLastError(), name);  // also clears the error, which the next check would report otherwise
}

constexpr int block_threads = 256;
// 132 multiprocessors hold 8 such blocks each; 16 times as many even out the load at the end.
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
