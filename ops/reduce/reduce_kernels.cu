// Sums and extrema over chosen dimensions in two stages: blocks fold chunks of the reduced elements, then a warp folds the chunks
// of one output. Chunks depend only on the shape, so that the order of additions does not change between runs.

#include <limits>
#include <type_traits>

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "ops/kernel/element_types.h"
#include "ops/kernel/fold.cuh"
#include "ops/kernel/map.cuh"
#include "ops/reduce/reduce_cuda_kernels.h"

namespace mpigrad::cuda {
namespace {

// The destination of a block's result: the partial results if there are several chunks, else y.
template <class A, class T>
__device__ void put(const ReductionWalk& r, std::int64_t chunk, std::int64_t output, A value, A* partial, T* y) {
  if (partial) partial[chunk * r.outputs + output] = value;
  else y[output] = store<T>(value);
}

// One block per chunk of one output; neighbouring threads read neighbouring elements.
template <class A, class T, class Fold>
__global__ void fold_inner_kernel(ReductionWalk r, A start, Fold fold, const T* x, A* partial, T* y) {
  __shared__ A shared[warp + 1];
  for (std::int64_t item = blockIdx.x; item < r.outputs * r.chunks; item += gridDim.x) {
    const std::int64_t output = item % r.outputs, chunk = item / r.outputs;
    const T* base = x + r.kept.offset(output);
    const std::int64_t end = min(r.count, (chunk + 1) * r.chunk);
    A total = start;
    for (std::int64_t i = chunk * r.chunk + static_cast<std::int64_t>(threadIdx.x); i < end; i += blockDim.x)
      total = fold(total, static_cast<A>(load(base[r.reduced.offset(i)])));
    total = fold_block(total, start, shared, fold);
    if (threadIdx.x == 0) put(r, chunk, output, total, partial, y);
  }
}

// The same for contiguous reduced elements: 16 bytes at a time, several loads in flight; chunks begin at a whole pack.
template <class A, class T, class Fold>
__global__ void fold_line_kernel(ReductionWalk r, A start, Fold fold, const T* x, A* partial, T* y) {
  constexpr int V = static_cast<int>(16 / sizeof(T));
  __shared__ A shared[warp + 1];
  const auto* packs = reinterpret_cast<const Pack<T, V>*>(x);
  for (std::int64_t chunk = blockIdx.x; chunk < r.chunks; chunk += gridDim.x) {
    const std::int64_t begin = chunk * r.chunk, end = min(r.count, begin + r.chunk);
    A total = start;
    const auto take = [&](const Pack<T, V>& in) {
#pragma unroll
      for (int i = 0; i < V; ++i) total = fold(total, static_cast<A>(load(in.of[i])));
    };
    constexpr int together = 4;
    const std::int64_t last = end / V;
    std::int64_t p = begin / V + static_cast<std::int64_t>(threadIdx.x);
    for (; p + (together - 1) * block_threads < last; p += together * block_threads) {
      Pack<T, V> in[together];
#pragma unroll
      for (int k = 0; k < together; ++k) in[k] = packs[p + k * block_threads];
#pragma unroll
      for (int k = 0; k < together; ++k) take(in[k]);
    }
    for (; p < last; p += block_threads) take(packs[p]);
    for (std::int64_t i = last * V + static_cast<std::int64_t>(threadIdx.x); i < end; i += block_threads)
      total = fold(total, static_cast<A>(load(x[i])));
    total = fold_block(total, start, shared, fold);
    if (threadIdx.x == 0) put(r, chunk, 0, total, partial, y);
  }
}

// One thread per output, for outputs of very few elements.
template <class A, class T, class Fold>
__global__ void fold_few_kernel(ReductionWalk r, A start, Fold fold, const T* x, T* y) {
  for (std::int64_t output = first_index(); output < r.outputs; output += grid_stride()) {
    const T* base = x + r.kept.offset(output);
    A total = start;
    for (std::int64_t i = 0; i < r.count; ++i) total = fold(total, static_cast<A>(load(base[r.reduced.offset(i)])));
    y[output] = store<T>(total);
  }
}

// One warp per output, for outputs of few elements.
template <class A, class T, class Fold>
__global__ void fold_short_kernel(ReductionWalk r, A start, Fold fold, const T* x, T* y) {
  const std::int64_t lane = static_cast<std::int64_t>(threadIdx.x) % warp;
  for (std::int64_t output = first_index() / warp; output < r.outputs; output += grid_stride() / warp) {
    const T* base = x + r.kept.offset(output);
    A total = start;
    for (std::int64_t i = lane; i < r.count; i += warp) total = fold(total, static_cast<A>(load(base[r.reduced.offset(i)])));
    total = fold_warp(total, fold);
    if (lane == 0) y[output] = store<T>(total);
  }
}

// Threads along x compute neighbouring outputs, threads along y share their elements. Blocks have block_threads threads.
template <class A, class T, class Fold>
__global__ void fold_outer_kernel(ReductionWalk r, A start, Fold fold, const T* x, A* partial, T* y) {
  __shared__ A shared[block_threads];
  const std::int64_t tiles = (r.outputs + blockDim.x - 1) / blockDim.x;
  const int own = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (std::int64_t item = blockIdx.x; item < tiles * r.chunks; item += gridDim.x) {
    const std::int64_t output = item % tiles * blockDim.x + static_cast<std::int64_t>(threadIdx.x), chunk = item / tiles;
    const std::int64_t end = min(r.count, (chunk + 1) * r.chunk);
    A total = start;
    if (output < r.outputs) {
      const T* base = x + r.kept.offset(output);
#pragma unroll 4
      for (std::int64_t i = chunk * r.chunk + static_cast<std::int64_t>(threadIdx.y); i < end; i += blockDim.y)
        total = fold(total, static_cast<A>(load(base[r.reduced.offset(i)])));
    }
    __syncthreads();
    shared[own] = total;
    __syncthreads();
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
      if (threadIdx.y < half) shared[own] = fold(shared[own], shared[own + static_cast<int>(half * blockDim.x)]);
      __syncthreads();
    }
    if (threadIdx.y == 0 && output < r.outputs) put(r, chunk, output, shared[own], partial, y);
  }
}

template <class A, class T, class Fold>
__global__ void fold_chunks_kernel(std::int64_t outputs, std::int64_t chunks, A start, Fold fold, const A* partial, T* y) {
  const std::int64_t lane = static_cast<std::int64_t>(threadIdx.x) % warp;
  for (std::int64_t output = first_index() / warp; output < outputs; output += grid_stride() / warp) {
    A total = start;
    for (std::int64_t c = lane; c < chunks; c += warp) total = fold(total, partial[c * outputs + output]);
    total = fold_warp(total, fold);
    if (lane == 0) y[output] = store<T>(total);
  }
}

unsigned at_most(std::int64_t blocks) { return static_cast<unsigned>(blocks < max_blocks ? blocks : max_blocks); }

template <class A, class T, class Fold>
void reduce(const ReductionWalk& r, A start, const Fold& fold, const T* x, A* partial, T* y, Stream stream) {
  if (r.outputs == 0) return;
  constexpr std::int64_t pack = 16 / sizeof(T);
  const bool line = r.outputs == 1 && r.reduced_is_contiguous && aligned(x, 16) && (r.chunks == 1 || r.chunk % pack == 0);
  if (line) {
    launch("reduce", fold_line_kernel<A, T, Fold>, at_most(r.chunks), block_threads, stream, r, start, fold, x, partial, y);
  } else if (r.chunks == 1 && r.count <= few_terms) {
    launch("reduce", fold_few_kernel<A, T, Fold>, blocks_for(r.outputs), block_threads, stream, r, start, fold, x, y);
  } else if (r.kept_is_contiguous) {
    unsigned width = 1;
    while (width < warp && width < r.outputs) width *= 2;
    const dim3 block(width, block_threads / width);
    const std::int64_t tiles = (r.outputs + width - 1) / width;
    launch("reduce", fold_outer_kernel<A, T, Fold>, at_most(tiles * r.chunks), block, stream, r, start, fold, x, partial, y);
  } else if (r.chunks == 1 && r.count <= 8 * warp) {
    launch("reduce", fold_short_kernel<A, T, Fold>, blocks_for(r.outputs * warp), block_threads, stream, r, start, fold, x, y);
  } else {
    launch("reduce", fold_inner_kernel<A, T, Fold>, at_most(r.outputs * r.chunks), block_threads, stream, r, start, fold, x,
           partial, y);
  }
  if (!partial) return;
  launch("reduce", fold_chunks_kernel<A, T, Fold>, blocks_for(r.outputs * warp), block_threads, stream, r.outputs, r.chunks,
         start, fold, partial, y);
}

template <class A>
struct Found {
  A value;
  std::int64_t at;
};
// The larger value, the first of equal ones; NaN before all others.
struct ArgMaxFold {
  template <class A>
  __device__ Found<A> operator()(const Found<A>& a, const Found<A>& b) const {
    if (b.at < 0) return a;
    if (a.at < 0) return b;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool second = a_nan != b_nan ? b_nan : a_nan || a.value == b.value ? b.at < a.at : a.value < b.value;
    return second ? b : a;
  }
};

template <class T>
__global__ void argmax_kernel(std::int64_t before, std::int64_t n, FastDivide behind, const T* x, std::int64_t* y) {
  const std::int64_t lane = static_cast<std::int64_t>(threadIdx.x) % warp, width = behind.divisor();
  for (std::int64_t output = first_index() / warp; output < before * width; output += grid_stride() / warp) {
    const std::int64_t row = behind.quotient(output);
    const T* from = x + row * n * width + (output - row * width);
    using A = Compute<T>;
    Found<A> best{A(0), -1};
    for (std::int64_t i = lane; i < n; i += warp) best = ArgMaxFold{}(best, Found<A>{load(from[i * width]), i});
    for (int step = warp / 2; step > 0; step /= 2) {
      Found<A> other;
      other.value = static_cast<A>(__shfl_down_sync(0xffffffffU, best.value, step));
      other.at = __shfl_down_sync(0xffffffffU, best.at, step);
      best = ArgMaxFold{}(best, other);
    }
    if (lane == 0) y[output] = best.at;
  }
}

}  // namespace

template <class T>
void sum(const ReductionWalk& reduction, const T* x, void* partial, T* y, Stream stream) {
  using A = std::conditional_t<std::is_same_v<T, std::int64_t>, std::int64_t, double>;
  reduce(reduction, A(0), AddFold{}, x, static_cast<A*>(partial), y, stream);
}

template <class T>
void extremum(const ReductionWalk& reduction, bool largest, const T* x, void* partial, T* y, Stream stream) {
  using A = Compute<T>;
  using Limits = std::numeric_limits<A>;
  const A lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  const A highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  if (largest) reduce(reduction, lowest, MaxFold{}, x, static_cast<A*>(partial), y, stream);
  else reduce(reduction, highest, MinFold{}, x, static_cast<A*>(partial), y, stream);
}

template <class T>
void argmax(std::int64_t before, std::int64_t n, std::int64_t behind, const T* x, std::int64_t* y, Stream stream) {
  if (before * behind == 0) return;
  launch("argmax", argmax_kernel<T>, blocks_for(before * behind * warp), block_threads, stream, before, n, FastDivide(behind), x,
         y);
}

#define MPIGRAD_MAKE(T) template void sum(const ReductionWalk&, const T*, void*, T*, Stream);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
MPIGRAD_MAKE(std::int64_t)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(T) template void extremum(const ReductionWalk&, bool, const T*, void*, T*, Stream);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
MPIGRAD_INTEGER_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(T) template void argmax(std::int64_t, std::int64_t, std::int64_t, const T*, std::int64_t*, Stream);
MPIGRAD_ALL_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
