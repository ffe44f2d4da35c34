// Sums of cotangents per channel, channels last, and the adjoint of norms. The partition of rows into blocks depends only on
// their number, and blocks are combined in a fixed order.

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/channel_rows_cuda.h"
#include "ops/kernel/element_types.h"
#include "ops/kernel/fold.cuh"
#include "ops/kernel/map.cuh"
#include "ops/norm/channel_parts.cuh"

namespace mpigrad::cuda {
namespace {

// A norm's values for the V channels of a thread: y = f(z), z = (x - m) a + b, rounded to the type of y.
template <class T, int V, class S>
struct Norm {
  S m[V], a[V], b[V];
  __device__ Norm(const NormOfChannels<S>& norm, std::int64_t at) {
#pragma unroll
    for (int i = 0; i < V; ++i) m[i] = norm.m[at + i], a[i] = norm.a[at + i], b[i] = norm.b[at + i];
  }
  __device__ S z(int i, S x) const { return load(store<T>((x - m[i]) * a[i] + b[i])); }
};
// The values without a norm: the cotangent is not changed by an activation.
template <class T, int V, class S>
struct Centre {
  S m[V];
  __device__ Centre(const NormOfChannels<S>& norm, std::int64_t at) {
#pragma unroll
    for (int i = 0; i < V; ++i) m[i] = norm.m[at + i];
  }
};

// sum h and sum h (x - m) of each block's rows; h = g f'(z), or g
template <template <class, int, class> class Of, class T, int V, class S>
__global__ void __launch_bounds__(block_threads, resident)
    dots_kernel(std::int64_t rows, std::int64_t packs, std::int64_t block_rows, const Pack<T, V>* g, const Pack<T, V>* x,
                NormOfChannels<S> norm, double* scratch) {
  constexpr bool behind = std::is_same_v<Of<T, V, S>, Norm<T, V, S>>;
  const Part part(rows, packs, block_rows);
  double sums[2][V] = {};
  if (part.pack < packs) {
    const Of<T, V, S> of(norm, (blockIdx.z * packs + part.pack) * V);
    const S factor = norm.fused.factor;
    part.for_rows_together<pairs_together>([&](auto together, std::int64_t r) {
      constexpr int n = decltype(together)::value;
      Pack<T, V> of_g[n], of_x[n];
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const auto at = part.at(r + k * static_cast<std::int64_t>(blockDim.y));
        of_g[k] = g[at], of_x[k] = x[at];
      }
#pragma unroll
      for (int i = 0; i < V; ++i) {
        Few<T> sum{}, dot{};
#pragma unroll
        for (int k = 0; k < n; ++k) {
          S h = load(of_g[k].of[i]);
          const S in = load(of_x[k].of[i]);
          if constexpr (behind) h = of.z(i, in) <= 0 ? factor * h : h;
          sum += static_cast<Few<T>>(h);
          dot += static_cast<Few<T>>(h) * (static_cast<Few<T>>(in) - static_cast<Few<T>>(of.m[i]));
        }
        sums[0][i] += static_cast<double>(sum);
        sums[1][i] += static_cast<double>(dot);
      }
    });
  }
  add_along_y(sums);
  if (threadIdx.y != 0 || part.pack >= packs) return;
  double* block = part.of_block(scratch, 2, V);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    block[i] = sums[0][i];
    block[packs * V + i] = sums[1][i];
  }
}

// For a norm, also the factors of its input's cotangent: p = -a r^2 dot / n, q = -a sum / n, groups one after the other.
template <class S>
__global__ void join_dots_kernel(std::int64_t rows, std::int64_t channels, std::int64_t blocks, const double* scratch, S* sums,
                                 S* dots, NormOfChannels<S> norm, S* p, S* q) {
  __shared__ double shared[warp + 1];
  const std::int64_t group = blockIdx.y;
  scratch += group * blocks * 2 * channels;
  for (std::int64_t c = blockIdx.x; c < channels; c += gridDim.x) {
    double sum = 0, dot = 0;
    for (std::int64_t b = threadIdx.x; b < blocks; b += block_threads) {
      sum += scratch[b * 2 * channels + c];
      dot += scratch[(b * 2 + 1) * channels + c];
    }
    sum = fold_block(sum, 0.0, shared, AddFold{});
    dot = fold_block(dot, 0.0, shared, AddFold{});
    if (threadIdx.x != 0) continue;
    const auto at = group * channels + c;
    sums[at] = store<S>(sum);
    dots[at] = store<S>(dot);
    if (!p) continue;
    const double each = -static_cast<double>(norm.a[at]) / static_cast<double>(rows), r = static_cast<double>(norm.inverse[at]);
    p[at] = store<S>(each * r * r * dot);
    q[at] = store<S>(each * sum);
  }
}

// gx = a h + p (x - m) + q; gx may be in g's memory.
template <class T, int V, class S>
__global__ void __launch_bounds__(block_threads, resident)
    input_kernel(std::int64_t rows, std::int64_t packs, std::int64_t block_rows, const Pack<T, V>* g, const Pack<T, V>* x,
                 NormOfChannels<S> norm, const S* p, const S* q, Pack<T, V>* gx) {
  const Part part(rows, packs, block_rows);
  if (part.pack >= packs) return;
  const auto c = (blockIdx.z * packs + part.pack) * V;
  const Norm<T, V, S> of(norm, c);
  const S factor = norm.fused.factor;
  S of_p[V], of_q[V];
#pragma unroll
  for (int i = 0; i < V; ++i) of_p[i] = p[c + i], of_q[i] = q[c + i];
  part.for_rows_together<pairs_together>([&](auto together, std::int64_t r) {
    constexpr int n = decltype(together)::value;
    Pack<T, V> of_g[n], of_x[n];
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const auto at = part.at(r + k * static_cast<std::int64_t>(blockDim.y));
      of_g[k] = g[at], of_x[k] = x[at];
    }
#pragma unroll
    for (int k = 0; k < n; ++k) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const S in = load(of_x[k].of[i]);
        S h = load(of_g[k].of[i]);
        h = of.z(i, in) <= 0 ? factor * h : h;
        of_g[k].of[i] = store<T>(of.a[i] * h + (of_p[i] * (in - of.m[i]) + of_q[i]));
      }
      gx[part.at(r + k * static_cast<std::int64_t>(blockDim.y))] = of_g[k];
    }
  });
}

template <template <class, int, class> class Of, class T, class S>
void run_dots(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* g, const T* x,
              const NormOfChannels<S>& norm, double* scratch, S* sums, S* dots, S* p, S* q, Stream stream) {
  const auto run = [&](const Launch& l, auto v) {
    constexpr int V = decltype(v)::value;
    launch("channel_dots", dots_kernel<Of, T, V, S>, l.grid, l.block, stream, rows, l.packs, l.block_rows, packs_at<V>(g),
           packs_at<V>(x), norm, scratch);
  };
  const auto l = over_packs<T>(groups, rows, channels, run, g, x);
  launch("channel_dots", join_dots_kernel<S>, of_groups(channels * block_threads, groups), block_threads, stream, rows, channels,
         l.blocks, scratch, sums, dots, norm, p, q);
}

}  // namespace

template <class T, class S>
void channel_dots(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* g, const T* x, const S* m,
                  double* scratch, S* sums, S* dots, Stream stream) {
  if (groups == 0 || channels == 0) return;
  run_dots<Centre>(groups, rows, channels, g, x, NormOfChannels<S>{.m = m}, scratch, sums, dots, static_cast<S*>(nullptr),
                   static_cast<S*>(nullptr), stream);
}

template <class T, class S>
void norm_adjoint(std::int64_t groups, std::int64_t rows, std::int64_t channels, const T* g, const T* x,
                  const NormOfChannels<S>& norm, double* scratch, T* gx, S* sums, S* dots, Stream stream) {
  if (groups == 0 || channels == 0) return;
  auto* p = reinterpret_cast<S*>(scratch + groups * channel_blocks(rows, channels) * 2 * channels);
  auto* q = p + groups * channels;
  if (norm.fused.is_none()) {  // y is z
    run_dots<Centre>(groups, rows, channels, g, x, norm, scratch, sums, dots, p, q, stream);
  } else {
    run_dots<Norm>(groups, rows, channels, g, x, norm, scratch, sums, dots, p, q, stream);
  }
  const auto run = [&](const Launch& l, auto v) {
    constexpr int V = decltype(v)::value;
    launch("norm_adjoint", input_kernel<T, V, S>, l.grid, l.block, stream, rows, l.packs, l.block_rows, packs_at<V>(g),
           packs_at<V>(x), norm, p, q, packs_at<V>(gx));
  };
  over_packs<T>(groups, rows, channels, run, g, x, gx);
}

#define MPIGRAD_MAKE(T)                                                                                                       \
  template void channel_dots(std::int64_t, std::int64_t, std::int64_t, const T*, const T*, const Compute<T>*, double*,        \
                             Compute<T>*, Compute<T>*, Stream);                                                               \
  template void norm_adjoint(std::int64_t, std::int64_t, std::int64_t, const T*, const T*, const NormOfChannels<Compute<T>>&, \
                             double*, T*, Compute<T>*, Compute<T>*, Stream);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
