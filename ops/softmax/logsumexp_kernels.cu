// Sums of exponentials: one block per row, or one block per 32 columns; sums in double, shifted by the largest term.

#include "ops/softmax/logsumexp_cuda.h"

#include <limits>

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "ops/kernel/fold.cuh"

namespace mpigrad::cuda {
namespace {

template <class T>
__device__ T bounded(T largest) {  // infinity - infinity is NaN
  constexpr T bound = std::numeric_limits<T>::max();
  return largest > bound ? bound : largest < -bound ? -bound : largest;
}

template <class T>
__global__ void rows_kernel(std::int64_t rows, std::int64_t n, const T* x, T* y) {
  __shared__ T shared_largest[warp + 1];
  __shared__ double shared_sum[warp + 1];
  const T lowest = -std::numeric_limits<T>::infinity();
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* row = x + r * n;
    T largest = lowest;
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) largest = max(largest, row[i]);
    const T shift = bounded(fold_block(largest, lowest, shared_largest, MaxFold{}));
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += static_cast<double>(std::exp(row[i] - shift));
    sum = fold_block(sum, 0.0, shared_sum, AddFold{});
    if (threadIdx.x == 0) y[r] = static_cast<T>(std::log(sum) + static_cast<double>(shift));
  }
}

// A warp handles 32 neighbouring columns; each of `parts` warps adds every `parts`-th of their elements.
template <int parts, class T>
__global__ void columns_kernel(std::int64_t columns, std::int64_t n, std::int64_t behind, const T* x, T* y) {
  __shared__ T largest_of[parts][warp];
  __shared__ double sum_of[parts][warp];
  const int lane = static_cast<int>(threadIdx.x) % warp, part = static_cast<int>(threadIdx.x) / warp;
  for (std::int64_t first = blockIdx.x; first * warp < columns; first += gridDim.x) {
    const std::int64_t at = first * warp + lane, end = at < columns ? n : 0;
    const T* column = x + (at < columns ? at / behind * n * behind + at % behind : 0);
    T largest = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = part; i < end; i += parts) largest = max(largest, column[i * behind]);
    largest_of[part][lane] = largest;
    __syncthreads();
    for (int p = 0; p < parts; ++p) largest = max(largest, largest_of[p][lane]);
    const T shift = bounded(largest);
    double sum = 0;
    for (std::int64_t i = part; i < end; i += parts) sum += static_cast<double>(std::exp(column[i * behind] - shift));
    sum_of[part][lane] = sum;
    __syncthreads();
    if (part != 0 || at >= columns) continue;
    for (int p = 1; p < parts; ++p) sum += sum_of[p][lane];
    y[at] = static_cast<T>(std::log(sum) + static_cast<double>(shift));
  }
}

template <class T>
__global__ void scaled_kernel(std::int64_t rows, std::int64_t columns, bool of_rows, const T* x, const T* a, const T* b, T* y) {
  for (std::int64_t at = first_index(); at < rows * columns; at += grid_stride()) {
    const std::int64_t other = of_rows ? at / columns : at % columns;
    y[at] = std::exp(x[at] - a[other]) * b[other];
  }
}

}  // namespace

template <class T>
void log_sum_exp(std::int64_t before, std::int64_t n, std::int64_t behind, const T* x, T* y, Stream stream) {
  if (before * behind == 0) return;
  if (behind == 1) {
    const int threads = n <= 64 ? 32 : n <= 1024 ? 128 : 512;
    const auto blocks = static_cast<unsigned>(before < max_blocks ? before : max_blocks);
    launch("logsumexp", rows_kernel<T>, blocks, threads, stream, before, n, x, y);
  } else {
    const auto columns = before * behind, warps = (columns + warp - 1) / warp;
    const auto blocks = static_cast<unsigned>(warps < max_blocks ? warps : max_blocks);
    if (n < 64) launch("logsumexp", columns_kernel<1, T>, blocks, warp, stream, columns, n, behind, x, y);
    else launch("logsumexp", columns_kernel<16, T>, blocks, 16 * warp, stream, columns, n, behind, x, y);
  }
}

template <class T>
void exp_scaled(std::int64_t rows, std::int64_t columns, bool of_rows, const T* x, const T* a, const T* b, T* y, Stream stream) {
  if (rows * columns == 0) return;
  launch("exp_scaled", scaled_kernel<T>, blocks_for(rows * columns), block_threads, stream, rows, columns, of_rows, x, a, b, y);
}

#define MPIGRAD_MAKE(T)                                                                      \
  template void log_sum_exp(std::int64_t, std::int64_t, std::int64_t, const T*, T*, Stream); \
  template void exp_scaled(std::int64_t, std::int64_t, bool, const T*, const T*, const T*, T*, Stream);
MPIGRAD_MAKE(float)
MPIGRAD_MAKE(double)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
