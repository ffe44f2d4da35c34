#include "framework/cuda/launch.cuh"
#include "ops/fft/fft_cuda_kernels.h"

namespace mpigrad::cuda {
namespace {

template <class T>
__global__ void weight_kernel(std::int64_t count, std::int64_t n, T between, bool clear, T* z) {
  const std::int64_t half = n / 2 + 1;
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) {
    const std::int64_t k = i % half;
    if (k > 0 && 2 * k < n) z[2 * i] *= between, z[2 * i + 1] *= between;
    else if (clear) z[2 * i + 1] = 0;
  }
}
template <class T>
__global__ void scale_kernel(std::int64_t count, T factor, T* x) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) x[i] *= factor;
}

}  // namespace

template <class T>
void weight_half_lines(std::int64_t lines, std::int64_t n, T between, bool clear, T* z, Stream stream) {
  const std::int64_t count = lines * (n / 2 + 1);
  if (count == 0) return;
  launch("fft", weight_kernel<T>, blocks_for(count), block_threads, stream, count, n, between, clear, z);
}
template <class T>
void scale_numbers(std::int64_t count, T factor, T* x, Stream stream) {
  if (count == 0) return;
  launch("fft", scale_kernel<T>, blocks_for(count), block_threads, stream, count, factor, x);
}

#define MPIGRAD_MAKE(T)                                                             \
  template void weight_half_lines(std::int64_t, std::int64_t, T, bool, T*, Stream); \
  template void scale_numbers(std::int64_t, T, T*, Stream);
MPIGRAD_MAKE(float)
MPIGRAD_MAKE(double)

}  // namespace mpigrad::cuda
