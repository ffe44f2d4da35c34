#include "framework/cuda/fill.h"

#include "framework/cuda/launch.cuh"

namespace mpigrad::cuda {
namespace {

template <class T>
__global__ void fill_kernel(T* y, T value, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) y[i] = value;
}

}  // namespace

template <class T>
void fill_elements(T* y, T value, std::int64_t count, Stream stream) {
  if (count == 0) return;
  fill_kernel<<<blocks_for(count), block_threads, 0, native(stream)>>>(y, value, count);
  check_launch("fill");
}

template void fill_elements(std::uint8_t*, std::uint8_t, std::int64_t, Stream);
template void fill_elements(std::uint16_t*, std::uint16_t, std::int64_t, Stream);
template void fill_elements(std::uint32_t*, std::uint32_t, std::int64_t, Stream);
template void fill_elements(std::uint64_t*, std::uint64_t, std::int64_t, Stream);

}  // namespace mpigrad::cuda
