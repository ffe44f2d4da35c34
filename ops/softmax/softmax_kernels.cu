// Softmax of rows: one block per row, or one thread per short row; sums in double.

#include <limits>

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "ops/kernel/element_types.h"
#include "ops/kernel/fold.cuh"
#include "ops/softmax/softmax_cuda_kernels.h"

namespace mpigrad::cuda {
namespace {

// y = exp(x - max x) / sum exp(x - max x), or its logarithm x - max x - log sum exp(x - max x)
template <class T>
__global__ void softmax_kernel(std::int64_t rows, std::int64_t n, const T* x, T* y, bool logarithm) {
  using A = Compute<T>;
  __shared__ A shared_largest[warp + 1];
  __shared__ double shared_sum[warp + 1];
  const A lowest = -std::numeric_limits<A>::infinity();
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* xs = x + r * n;
    T* ys = y + r * n;
    A largest = lowest;
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) largest = max(largest, load(xs[i]));
    largest = fold_block(largest, lowest, shared_largest, MaxFold{});
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += static_cast<double>(std::exp(load(xs[i]) - largest));
    sum = fold_block(sum, 0.0, shared_sum, AddFold{});
    const A factor = static_cast<A>(1.0 / sum), shift = static_cast<A>(std::log(sum));
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const A moved = load(xs[i]) - largest;
      ys[i] = store<T>(logarithm ? moved - shift : std::exp(moved) * factor);
    }
  }
}

// One thread per row, for rows of few elements.
template <class T>
__global__ void short_rows_kernel(std::int64_t rows, std::int64_t n, const T* x, T* y, bool logarithm) {
  using A = Compute<T>;
  for (std::int64_t r = first_index(); r < rows; r += grid_stride()) {
    const T* xs = x + r * n;
    T* ys = y + r * n;
    A largest = -std::numeric_limits<A>::infinity();
    for (std::int64_t i = 0; i < n; ++i) largest = MaxFold{}(largest, load(xs[i]));
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(std::exp(load(xs[i]) - largest));
    const A factor = static_cast<A>(1.0 / sum), shift = static_cast<A>(std::log(sum));
    for (std::int64_t i = 0; i < n; ++i) {
      const A moved = load(xs[i]) - largest;
      ys[i] = store<T>(logarithm ? moved - shift : std::exp(moved) * factor);
    }
  }
}

}  // namespace

template <class T>
void softmax(std::int64_t rows, std::int64_t n, const T* x, T* y, bool logarithm, Stream stream) {
  if (rows == 0 || n == 0) return;
  if (n <= few_terms)
    return launch("softmax", short_rows_kernel<T>, blocks_for(rows), block_threads, stream, rows, n, x, y, logarithm);
  const int threads = n <= 64 ? 32 : n <= 1024 ? 128 : 512;
  const auto blocks = static_cast<unsigned>(rows < max_blocks ? rows : max_blocks);
  launch("softmax", softmax_kernel<T>, blocks, threads, stream, rows, n, x, y, logarithm);
}

#define MPIGRAD_MAKE(T) template void softmax(std::int64_t, std::int64_t, const T*, T*, bool, Stream);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
