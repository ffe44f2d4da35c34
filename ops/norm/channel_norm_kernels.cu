// Statistics and affine maps per channel, channels last. The partition of rows into blocks depends only on their number, and
// blocks are combined in a fixed order.

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/tensor/strided.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/channel_rows_cuda.h"
#include "ops/kernel/element_types.h"
#include "ops/kernel/fold.cuh"
#include "ops/kernel/map.cuh"
#include "ops/norm/channel_parts.cuh"

namespace mpigrad::cuda {
namespace {

// Mean and m2 of each block's rows. Values are shifted by the block's first row, so that a large mean costs no digits of the
// squares.
template <class T, int V>
__global__ void __launch_bounds__(block_threads, resident)
    moments_kernel(std::int64_t rows, std::int64_t packs, std::int64_t block_rows, const Pack<T, V>* x, double* scratch) {
  const Part part(rows, packs, block_rows);
  double sums[2][V] = {};
  Few<T> shift[V] = {};
  if (part.pack < packs) {
    const auto first = x[part.at(part.begin)];
#pragma unroll
    for (int i = 0; i < V; ++i) shift[i] = static_cast<Few<T>>(load(first.of[i]));
    part.for_rows_together<rows_together>([&](auto together, std::int64_t r) {
      constexpr int n = decltype(together)::value;
      Pack<T, V> in[n];
#pragma unroll
      for (int k = 0; k < n; ++k) in[k] = x[part.at(r + k * static_cast<std::int64_t>(blockDim.y))];
#pragma unroll
      for (int i = 0; i < V; ++i) {
        Few<T> sum{}, squares{};
#pragma unroll
        for (int k = 0; k < n; ++k) {
          const Few<T> d = static_cast<Few<T>>(load(in[k].of[i])) - shift[i];
          sum += d;
          squares += d * d;
        }
        sums[0][i] += static_cast<double>(sum);
        sums[1][i] += static_cast<double>(squares);
      }
    });
  }
  add_along_y(sums);
  if (threadIdx.y != 0 || part.pack >= packs) return;
  const auto n = static_cast<double>(part.end - part.begin);
  double* block = part.of_block(scratch, 2, V);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    block[i] = static_cast<double>(shift[i]) + sums[0][i] / n;
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

// One block per channel of a group: with a warp instead, successive waits for memory and divisions dominated the time.
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
  const std::int64_t group = blockIdx.y;
  scratch += group * blocks * 2 * channels;
  for (std::int64_t c = blockIdx.x; c < channels; c += gridDim.x) {
    Moments all{0, 0, 0};
    for (std::int64_t b = threadIdx.x; b < blocks; b += block_threads) {
      const auto n = static_cast<double>(min(block_rows, rows - b * block_rows));
      all = joined(all, {n, scratch[b * 2 * channels + c], scratch[(b * 2 + 1) * channels + c]});
    }
    all = join_lanes(all);
    __syncthreads();  // values of the previous channel may still be read
    if (lane == 0) of_warp[own] = all;
    __syncthreads();
    if (own != 0) continue;
    all = join_lanes(lane < block_threads / warp ? of_warp[lane] : Moments{0, 0, 0});
    if (lane != 0) continue;
    mean[group * channels + c] = store<S>(all.mean);
    // An infinite variance would silently make the normalised values 0.
    const S squares = store<S>(all.m2);
    m2[group * channels + c] = squares + (squares - squares);  // squares, or NaN if they are infinite
  }
}

// y = f((x - m) a + b), in groups of n elements. Consecutive elements have consecutive channels, cyclically.
template <int V, class T, class S>
__global__ void affine_kernel(std::int64_t n, FastDivide channels, bool packed, S factor, const T* x, const S* m, const S* a,
                              const S* b, T* y) {
  const std::int64_t group = blockIdx.y, of_channels = group * channels.divisor();
  x += group * n, y += group * n, m += of_channels, a += of_channels, b += of_channels;
  // Without an activation nothing changes, including -0 and NaN; ReLU gives 0, also for -infinity.
  const auto f = [factor](S z) { return z < 0 ? (factor == 0 ? S{} : factor * z) : z; };
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

// h = y <= 0 ? factor g : g (may be in g's memory), and the sums of h over each block's rows.
template <class T, int V>
__global__ void leaky_sums_kernel(std::int64_t rows, std::int64_t packs, std::int64_t block_rows, scalar::LeakyReluAdjoint f,
                                  const Pack<T, V>* g, const Pack<T, V>* y, Pack<T, V>* h, double* scratch) {
  const Part part(rows, packs, block_rows);
  double sums[1][V] = {};
  if (part.pack < packs)
    part.for_rows([&](std::int64_t r) {
      const auto at = part.at(r);
      auto values = g[at];
      const auto of_y = y[at];
#pragma unroll
      for (int i = 0; i < V; ++i) {
        values.of[i] = store<T>(f(load(values.of[i]), load(of_y.of[i])));
        sums[0][i] += static_cast<double>(load(values.of[i]));
      }
      h[at] = values;
    });
  add_along_y(sums);
  if (threadIdx.y != 0 || part.pack >= packs) return;
  double* block = part.of_block(scratch, 1, V);
#pragma unroll
  for (int i = 0; i < V; ++i) block[i] = sums[0][i];
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

}  // namespace

std::int64_t channel_blocks(std::int64_t rows, std::int64_t channels) {
  std::int64_t most = 0;  // maximum over all pack widths
  for (const int width : {1, 2, 4, 8}) {
    const auto blocks = blocks_of(rows, channels / width);
    most = blocks > most ? blocks : most;
  }
  return most;
}

template <class T, class S>
void channel_moments(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* x, double* scratch, S* mean, S* m2,
                     Stream stream) {
  if (groups == 0 || channels == 0) return;
  const auto run = [&](const Launch& l, auto v) {
    constexpr int V = decltype(v)::value;
    launch("channel_moments", moments_kernel<T, V>, l.grid, l.block, stream, rows, l.packs, l.block_rows, packs_at<V>(x),
           scratch);
  };
  const auto l = over_packs<T>(groups, rows, channels, run, x);
  launch("channel_moments", join_moments_kernel<S>, of_groups(channels * block_threads, groups), block_threads, stream, rows,
         channels, l.blocks, l.block_rows, scratch, mean, m2);
}

template <class T, class S>
void channel_affine(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* x, const S* m, const S* a, const S* b,
                    scalar::Fused fused, T* y, Stream stream) {
  const std::int64_t n = rows * channels;
  if (groups * n == 0) return;
  constexpr int V = static_cast<int>(16 / sizeof(T));
  bool packed = channels % V == 0 && aligned(x, sizeof(T) * V) && aligned(y, sizeof(T) * V);
  for (const S* of_channels : {m, a, b}) packed = packed && aligned(of_channels, sizeof(S) * V);
  launch("channel_affine", affine_kernel<V, T, S>, of_groups((n + V - 1) / V, groups), block_threads, stream, n,
         FastDivide(channels), packed, static_cast<S>(fused.factor), x, m, a, b, y);
}

template <class T>
void bias_activation_adjoint(std::int64_t rows, std::int64_t channels, const T* g, const T* y, scalar::Fused fused,
                             double* scratch, T* h, T* sums, Stream stream) {
  if (channels == 0) return;
  const auto run = [&](const Launch& l, auto v) {
    constexpr int V = decltype(v)::value;
    launch("bias_activation_adjoint", leaky_sums_kernel<T, V>, l.grid, l.block, stream, rows, l.packs, l.block_rows,
           scalar::LeakyReluAdjoint{fused}, packs_at<V>(g), packs_at<V>(y), packs_at<V>(h), scratch);
  };
  const auto l = over_packs<T>(1, rows, channels, run, g, y, h);
  launch("bias_activation_adjoint", join_sums_kernel<T>, blocks_for(channels * block_threads), block_threads, stream, channels,
         l.blocks, scratch, sums);
}

#define MPIGRAD_MAKE(T)                                                                                                         \
  template void channel_moments(std::int64_t, std::int64_t, std::int64_t, const T*, double*, Compute<T>*, Compute<T>*, Stream); \
  template void channel_affine(std::int64_t, std::int64_t, std::int64_t, const T*, const Compute<T>*, const Compute<T>*,        \
                               const Compute<T>*, scalar::Fused, T*, Stream);                                                   \
  template void bias_activation_adjoint(std::int64_t, std::int64_t, const T*, const T*, scalar::Fused, double*, T*, T*, Stream);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
