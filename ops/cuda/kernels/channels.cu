// Statistics and affine maps per channel, channels last. Blocks take rows by their number alone and are combined in a fixed
// order.

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/fold.cuh"
#include "ops/cuda/kernels/map.cuh"
#include "ops/cuda/types.h"
#include "ops/scalar.h"

namespace mpigrad::cuda {
namespace {

// Threads along x have neighbouring packs of channels, threads along y rows.
unsigned tile_width(std::int64_t packs) {
  unsigned width = 1;
  while (width < warp && width < packs) width *= 2;
  return width;
}
std::int64_t tiles_of(std::int64_t packs) { return (packs + tile_width(packs) - 1) / tile_width(packs); }

// The part of [rows, packs] that a block of threads has: V neighbouring channels along x, rows along y.
struct Part {
  std::int64_t pack, begin, end;
  __device__ Part(std::int64_t rows, std::int64_t block_rows)
      : pack(static_cast<std::int64_t>(blockIdx.x) * blockDim.x + static_cast<std::int64_t>(threadIdx.x)),
        begin(static_cast<std::int64_t>(blockIdx.y) * block_rows), end(min(rows, begin + block_rows)) {}
  // for (rows of this thread) f(row)
  template <class F>
  __device__ void for_rows(const F& f) const {
    for (std::int64_t r = begin + static_cast<std::int64_t>(threadIdx.y); r < end; r += blockDim.y) f(r);
  }
};

// Sums N values for each of V channels over the threads along y; those with threadIdx.y == 0 have the results.
template <int N, int V>
__device__ void add_along_y(double (&values)[N][V]) {
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

// scratch: [blocks, 2, channels]: mean and m2 of each block's rows. Values are shifted by the block's first row, so that the
// squares of the shifted ones lose no digits to a large mean.
template <class T, int V>
__global__ void moments_kernel(std::int64_t rows, std::int64_t packs, std::int64_t block_rows, const Pack<T, V>* x,
                               double* scratch) {
  const Part part(rows, block_rows);
  double sums[2][V] = {}, shift[V] = {};
  if (part.pack < packs) {
    const auto first = x[part.begin * packs + part.pack];
#pragma unroll
    for (int i = 0; i < V; ++i) shift[i] = static_cast<double>(load(first.of[i]));
    part.for_rows([&](std::int64_t r) {
      const auto in = x[r * packs + part.pack];
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const double d = static_cast<double>(load(in.of[i])) - shift[i];
        sums[0][i] += d;
        sums[1][i] += d * d;
      }
    });
  }
  add_along_y(sums);
  if (threadIdx.y != 0 || part.pack >= packs) return;
  const auto n = static_cast<double>(part.end - part.begin);
  double* block = scratch + (static_cast<std::int64_t>(blockIdx.y) * 2 * packs + part.pack) * V;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    block[i] = shift[i] + sums[0][i] / n;
    block[packs * V + i] = max(0.0, sums[1][i] - sums[0][i] * sums[0][i] / n);
  }
}

struct Moments {
  double count, mean, m2;
};
// Chan et al., "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
__device__ Moments joined(const Moments& a, const Moments& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const double total = a.count + b.count, delta = b.mean - a.mean;
  return {total, a.mean + delta * (b.count / total), a.m2 + b.m2 + delta * delta * (a.count * b.count / total)};
}

// A block for each channel: with a warp, waits for memory and divisions one behind the other took longer than all else.
template <class S>
__global__ void join_moments_kernel(std::int64_t rows, std::int64_t channels, std::int64_t blocks, std::int64_t block_rows,
                                    const double* scratch, S* mean, S* m2) {
  __shared__ Moments of_warp[block_threads / warp];
  const int lane = static_cast<int>(threadIdx.x) % warp, own = static_cast<int>(threadIdx.x) / warp;
  const auto join_lanes = [](Moments all) {
    for (int step = warp / 2; step > 0; step /= 2) {
      Moments other;
      other.count = __shfl_down_sync(0xffffffffU, all.count, step);
      other.mean = __shfl_down_sync(0xffffffffU, all.mean, step);
      other.m2 = __shfl_down_sync(0xffffffffU, all.m2, step);
      all = joined(all, other);
    }
    return all;
  };
  for (std::int64_t c = blockIdx.x; c < channels; c += gridDim.x) {
    Moments all{0, 0, 0};
    for (std::int64_t b = threadIdx.x; b < blocks; b += block_threads) {
      const auto n = static_cast<double>(min(block_rows, rows - b * block_rows));
      all = joined(all, {n, scratch[b * 2 * channels + c], scratch[(b * 2 + 1) * channels + c]});
    }
    all = join_lanes(all);
    __syncthreads();  // an earlier channel's may still be read
    if (lane == 0) of_warp[own] = all;
    __syncthreads();
    if (own != 0) continue;
    all = join_lanes(lane < block_threads / warp ? of_warp[lane] : Moments{0, 0, 0});
    if (lane != 0) continue;
    mean[c] = store<S>(all.mean);
    // Infinity would make the normalised values 0 without a word.
    const S squares = store<S>(all.m2);
    m2[c] = squares + (squares - squares);  // 0, or NaN of infinity
  }
}

// y = f((x - m) a + b). The channel of consecutive elements goes up by one and around.
template <int V, class T, class S>
__global__ void affine_kernel(std::int64_t n, FastDivide channels, bool packed, S slope, const T* x, const S* m, const S* a,
                              const S* b, T* y) {
  // With slope 1 nothing changes, -0 and NaN included; with 0 it is 0, also for -infinity.
  const auto f = [slope](S z) { return z < 0 ? (slope == 0 ? S{} : slope * z) : z; };
  const std::int64_t packs = (n + V - 1) / V, width = channels.divisor();
  for (std::int64_t p = first_index(); p < packs; p += grid_stride()) {
    const std::int64_t at = p * V;
    std::int64_t c = at - channels.quotient(at) * width;
    if (packed) {  // V divides both n and the channels
      const auto in = *reinterpret_cast<const Pack<T, V>*>(x + at);
      const auto of_m = *reinterpret_cast<const Pack<S, V>*>(m + c), of_a = *reinterpret_cast<const Pack<S, V>*>(a + c),
                 of_b = *reinterpret_cast<const Pack<S, V>*>(b + c);
      Pack<T, V> out;
#pragma unroll
      for (int i = 0; i < V; ++i) out.of[i] = store<T>(f((load(in.of[i]) - of_m.of[i]) * of_a.of[i] + of_b.of[i]));
      *reinterpret_cast<Pack<T, V>*>(y + at) = out;
    } else {
      for (std::int64_t i = at; i < at + V && i < n; ++i) {
        y[i] = store<T>(f((load(x[i]) - m[c]) * a[c] + b[c]));
        if (++c == width) c = 0;
      }
    }
  }
}

// scratch: [blocks, 2, channels]: sum g and sum g (x - m) of each block's rows
template <class T, int V, class S>
__global__ void dots_kernel(std::int64_t rows, std::int64_t packs, std::int64_t block_rows, const Pack<T, V>* g,
                            const Pack<T, V>* x, const S* m, double* scratch) {
  const Part part(rows, block_rows);
  double sums[2][V] = {};
  if (part.pack < packs) {
    double centre[V];
#pragma unroll
    for (int i = 0; i < V; ++i) centre[i] = static_cast<double>(m[part.pack * V + i]);
    part.for_rows([&](std::int64_t r) {
      const auto of_g = g[r * packs + part.pack], of_x = x[r * packs + part.pack];
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const auto value = static_cast<double>(load(of_g.of[i]));
        sums[0][i] += value;
        sums[1][i] += value * (static_cast<double>(load(of_x.of[i])) - centre[i]);
      }
    });
  }
  add_along_y(sums);
  if (threadIdx.y != 0 || part.pack >= packs) return;
  double* block = scratch + (static_cast<std::int64_t>(blockIdx.y) * 2 * packs + part.pack) * V;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    block[i] = sums[0][i];
    block[packs * V + i] = sums[1][i];
  }
}

template <class S>
__global__ void join_dots_kernel(std::int64_t channels, std::int64_t blocks, const double* scratch, S* sums, S* dots) {
  __shared__ double shared[warp + 1];
  for (std::int64_t c = blockIdx.x; c < channels; c += gridDim.x) {
    double sum = 0, dot = 0;
    for (std::int64_t b = threadIdx.x; b < blocks; b += block_threads) {
      sum += scratch[b * 2 * channels + c];
      dot += scratch[(b * 2 + 1) * channels + c];
    }
    sum = fold_block(sum, 0.0, shared, AddFold{});
    dot = fold_block(dot, 0.0, shared, AddFold{});
    if (threadIdx.x != 0) continue;
    sums[c] = store<S>(sum);
    dots[c] = store<S>(dot);
  }
}

// h = y <= 0 ? slope g : g, which may be g, and scratch: [blocks, channels], the sums of h over each block's rows.
template <class T, int V>
__global__ void leaky_sums_kernel(std::int64_t rows, std::int64_t packs, std::int64_t block_rows, scalar::LeakyReluAdjoint f,
                                  const Pack<T, V>* g, const Pack<T, V>* y, Pack<T, V>* h, double* scratch) {
  const Part part(rows, block_rows);
  double sums[1][V] = {};
  if (part.pack < packs)
    part.for_rows([&](std::int64_t r) {
      auto values = g[r * packs + part.pack];
      const auto of_y = y[r * packs + part.pack];
#pragma unroll
      for (int i = 0; i < V; ++i) {
        values.of[i] = store<T>(f(load(values.of[i]), load(of_y.of[i])));
        sums[0][i] += static_cast<double>(load(values.of[i]));
      }
      h[r * packs + part.pack] = values;
    });
  add_along_y(sums);
  if (threadIdx.y != 0 || part.pack >= packs) return;
#pragma unroll
  for (int i = 0; i < V; ++i) scratch[(static_cast<std::int64_t>(blockIdx.y) * packs + part.pack) * V + i] = sums[0][i];
}

template <class T>
__global__ void join_sums_kernel(std::int64_t channels, std::int64_t blocks, const double* scratch, T* sums) {
  __shared__ double shared[warp + 1];
  for (std::int64_t c = blockIdx.x; c < channels; c += gridDim.x) {
    double sum = 0;
    for (std::int64_t b = threadIdx.x; b < blocks; b += block_threads) sum += scratch[b * channels + c];
    sum = fold_block(sum, 0.0, shared, AddFold{});
    if (threadIdx.x == 0) sums[c] = store<T>(sum);
  }
}

// Blocks of rows of packs.
std::int64_t blocks_of(std::int64_t rows, std::int64_t packs) {
  if (rows == 0 || packs == 0) return 0;
  const std::int64_t height = block_threads / tile_width(packs), tiles = tiles_of(packs);
  const std::int64_t most = tiles < 2048 ? 2048 / tiles : 1;
  const std::int64_t full = (rows + height * 8 - 1) / (height * 8);  // 8 rows for each thread
  return full < most ? full : most;
}

struct Launch {
  dim3 block, grid;
  std::int64_t packs = 0, blocks = 0, block_rows = 0;
};
Launch launch_of(std::int64_t rows, std::int64_t packs) {
  Launch l;
  l.packs = packs;
  const unsigned width = tile_width(packs);
  l.block = dim3(width, block_threads / width);
  const auto wanted = blocks_of(rows, packs);
  l.block_rows = wanted ? (rows + wanted - 1) / wanted : 1;
  l.blocks = (rows + l.block_rows - 1) / l.block_rows;  // none is empty
  l.grid = dim3(static_cast<unsigned>(tiles_of(packs)), static_cast<unsigned>(l.blocks));
  return l;
}

template <int V, class T>
auto packs_at(T* pointer) {
  using Packs = std::conditional_t<std::is_const_v<T>, const Pack<std::remove_const_t<T>, V>, Pack<T, V>>;
  return reinterpret_cast<Packs*>(pointer);
}

// f(launch, V) unless there are no rows, with packs of 16 bytes if the number of channels and the addresses allow it. What it
// launched.
template <class T, class F, class... P>
Launch over_packs(std::int64_t rows, std::int64_t channels, const F& f, const P*... pointers) {
  const auto run = [&](auto v) {
    const auto l = launch_of(rows, channels / v);
    if (l.blocks > 0) f(l, v);
    return l;
  };
  constexpr int wide = static_cast<int>(16 / sizeof(T));
  if (channels % wide == 0 && (aligned(pointers, 16) && ...)) return run(std::integral_constant<int, wide>{});
  return run(std::integral_constant<int, 1>{});
}

}  // namespace

std::int64_t channel_blocks(std::int64_t rows, std::int64_t channels) {
  std::int64_t most = 0;  // for packs of any width
  for (const int width : {1, 2, 4, 8}) {
    const auto blocks = blocks_of(rows, channels / width);
    most = blocks > most ? blocks : most;
  }
  return most;
}

template <class T, class S>
void channel_moments(std::int64_t rows, std::int64_t channels, const T* x, double* scratch, S* mean, S* m2, Stream stream) {
  if (channels == 0) return;
  const auto run = [&](const Launch& l, auto v) {
    constexpr int V = decltype(v)::value;
    launch("channel_moments", moments_kernel<T, V>, l.grid, l.block, stream, rows, l.packs, l.block_rows, packs_at<V>(x),
           scratch);
  };
  const auto l = over_packs<T>(rows, channels, run, x);
  launch("channel_moments", join_moments_kernel<S>, blocks_for(channels * block_threads), block_threads, stream, rows, channels,
         l.blocks, l.block_rows, scratch, mean, m2);
}

template <class T, class S>
void channel_affine(std::int64_t rows, std::int64_t channels, const T* x, const S* m, const S* a, const S* b, double slope, T* y,
                    Stream stream) {
  const std::int64_t n = rows * channels;
  if (n == 0) return;
  constexpr int V = static_cast<int>(16 / sizeof(T));
  bool packed = channels % V == 0 && aligned(x, sizeof(T) * V) && aligned(y, sizeof(T) * V);
  for (const S* of_channels : {m, a, b}) packed = packed && aligned(of_channels, sizeof(S) * V);
  launch("channel_affine", affine_kernel<V, T, S>, blocks_for((n + V - 1) / V), block_threads, stream, n, FastDivide(channels),
         packed, static_cast<S>(slope), x, m, a, b, y);
}

template <class T, class S>
void channel_dots(std::int64_t rows, std::int64_t channels, const T* g, const T* x, const S* m, double* scratch, S* sums, S* dots,
                  Stream stream) {
  if (channels == 0) return;
  const auto run = [&](const Launch& l, auto v) {
    constexpr int V = decltype(v)::value;
    launch("channel_dots", dots_kernel<T, V, S>, l.grid, l.block, stream, rows, l.packs, l.block_rows, packs_at<V>(g),
           packs_at<V>(x), m, scratch);
  };
  const auto l = over_packs<T>(rows, channels, run, g, x);
  launch("channel_dots", join_dots_kernel<S>, blocks_for(channels * block_threads), block_threads, stream, channels, l.blocks,
         scratch, sums, dots);
}

template <class T>
void bias_activation_adjoint(std::int64_t rows, std::int64_t channels, const T* g, const T* y, double slope, double* scratch,
                             T* h, T* sums, Stream stream) {
  if (channels == 0) return;
  const auto run = [&](const Launch& l, auto v) {
    constexpr int V = decltype(v)::value;
    launch("bias_activation_adjoint", leaky_sums_kernel<T, V>, l.grid, l.block, stream, rows, l.packs, l.block_rows,
           scalar::LeakyReluAdjoint{slope}, packs_at<V>(g), packs_at<V>(y), packs_at<V>(h), scratch);
  };
  const auto l = over_packs<T>(rows, channels, run, g, y, h);
  launch("bias_activation_adjoint", join_sums_kernel<T>, blocks_for(channels * block_threads), block_threads, stream, channels,
         l.blocks, scratch, sums);
}

#define MPIGRAD_MAKE(T)                                                                                                       \
  template void channel_moments(std::int64_t, std::int64_t, const T*, double*, Compute<T>*, Compute<T>*, Stream);             \
  template void channel_affine(std::int64_t, std::int64_t, const T*, const Compute<T>*, const Compute<T>*, const Compute<T>*, \
                               double, T*, Stream);                                                                           \
  template void bias_activation_adjoint(std::int64_t, std::int64_t, const T*, const T*, double, double*, T*, T*, Stream);     \
  template void channel_dots(std::int64_t, std::int64_t, const T*, const T*, const Compute<T>*, double*, Compute<T>*,         \
                             Compute<T>*, Stream);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
