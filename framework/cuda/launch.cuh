#pragma once
// How kernels are launched. Those that go over elements: blocks of 256 threads, as many as fill the GPU several times over, each
// of which strides over the rest. Indices have 64 bits.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "framework/cuda/check.h"

namespace mpigrad::cuda {

// Runs kernel(arguments...) on `stream`, without dynamic shared memory. What cannot start throws an error with this name; what
// fails while it runs shows up at a later call. All launches come here: without the <<<>>> of nvcc's language, any C++ compiler
// reads the kernels, and tests run them on a CPU.
template <class... P>
void launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, Stream stream, std::type_identity_t<P>... arguments) {
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = grid, configuration.blockDim = block, configuration.stream = native(stream);
  static_cast<void>(cudaLaunchKernelEx(&configuration, kernel, arguments...));
  check(cudaGetLastError(), name);  // also takes the error back, or the next check would see it
}

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
