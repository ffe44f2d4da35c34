// Maximum pooling. Threads as in pool_kernels.cu.

#include "ops/pool/windows.cuh"

namespace mpigrad::cuda {
namespace {

template <class Form, class T, int V>
__global__ void max_forward_kernel(Windows p, const Pack<T, V>* x, Pack<T, V>* y, Pack<std::int32_t, V>* winner) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item);
    Compute<T> best[V];
    Pack<std::int32_t, V> place;
#pragma unroll
    for (int c = 0; c < V; ++c) {
      best[c] = -static_cast<Compute<T>>(INFINITY);
      place.of[c] = -1;
    }
    for_taps<Form>(p, o, [&](int tap, std::int64_t pixel) {
      const auto in = x[pixel * p.packs.divisor() + o.pack];
#pragma unroll
      for (int c = 0; c < V; ++c) {
        // A value becomes the maximum if there is none yet, if it is larger, or if it is the first NaN.
        const Compute<T> v = load(in.of[c]), b = best[c];
        const bool take = place.of[c] < 0 || v > b || (v != v && b == b);
        best[c] = take ? v : b;
        place.of[c] = take ? tap : place.of[c];
      }
    });
    Pack<T, V> result;
#pragma unroll
    for (int c = 0; c < V; ++c) result.of[c] = store<T>(best[c]);
    y[row * p.items + item] = result;
    winner[row * p.items + item] = place;
  });
}

template <class Form, class T, int V>
__global__ void max_scatter_kernel(Windows p, const Pack<T, V>* gy, const Pack<std::int32_t, V>* winner, Pack<T, V>* gx) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place i = place_of(p, row, item);
    Compute<T> sum[V] = {};
    for_outputs<Form>(p, i, [&](int tap, std::int64_t pixel) {
      const auto at = pixel * p.packs.divisor() + i.pack;
      const auto place = winner[at];
      const auto g = gy[at];
#pragma unroll
      for (int c = 0; c < V; ++c)
        if (place.of[c] == tap) sum[c] += load(g.of[c]);
    });
    Pack<T, V> result;
#pragma unroll
    for (int c = 0; c < V; ++c) result.of[c] = store<T>(sum[c]);
    gx[row * p.items + item] = result;
  });
}

template <class Form, class T, int V>
__global__ void max_gather_kernel(Windows p, const T* x, const Pack<std::int32_t, V>* winner, Pack<T, V>* y) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item);
    const auto place = winner[row * p.items + item];
    Pack<T, V> result;
#pragma unroll
    for (int c = 0; c < V; ++c) {
      result.of[c] = store<T>(Compute<T>{});
      if (place.of[c] < 0) continue;
      const auto pixel = input_of<Form>(p, o, place.of[c]);
      result.of[c] = x[(pixel * p.packs.divisor() + o.pack) * V + c];
    }
    y[row * p.items + item] = result;
  });
}

}  // namespace

template <class T>
void max_pool_forward(const PoolProblem& p, const T* x, T* y, std::int32_t* winner, void* stream, PoolKernels wanted) {
  const auto run = [&](const Windows& w, const RowGrid& g, auto v, auto form) {
    constexpr int V = decltype(v)::value;
    launch("max_pool", max_forward_kernel<decltype(form), T, V>, g.grid, g.block, stream, w, packs<V>(x), packs<V>(y),
           packs<V>(winner));
  };
  over_windows<T>(p, p.out, wanted, run, x, y, winner);
}
template <class T>
void max_pool_scatter(const PoolProblem& p, const T* gy, const std::int32_t* winner, T* gx, void* stream, PoolKernels wanted) {
  const auto run = [&](const Windows& w, const RowGrid& g, auto v, auto form) {
    constexpr int V = decltype(v)::value;
    launch("max_pool_scatter", max_scatter_kernel<decltype(form), T, V>, g.grid, g.block, stream, w, packs<V>(gy),
           packs<V>(winner), packs<V>(gx));
  };
  over_windows<T>(p, p.in, wanted, run, gy, winner, gx);
}
template <class T>
void max_pool_gather(const PoolProblem& p, const T* x, const std::int32_t* winner, T* y, void* stream, PoolKernels wanted) {
  const auto run = [&](const Windows& w, const RowGrid& g, auto v, auto form) {
    constexpr int V = decltype(v)::value;
    launch("max_pool_gather", max_gather_kernel<decltype(form), T, V>, g.grid, g.block, stream, w, x, packs<V>(winner),
           packs<V>(y));
  };
  over_windows<T>(p, p.out, wanted, run, winner, y);
}

#define MPIGRAD_MAKE(T)                                                                                      \
  template void max_pool_forward(const PoolProblem&, const T*, T*, std::int32_t*, void*, PoolKernels);       \
  template void max_pool_scatter(const PoolProblem&, const T*, const std::int32_t*, T*, void*, PoolKernels); \
  template void max_pool_gather(const PoolProblem&, const T*, const std::int32_t*, T*, void*, PoolKernels);
MPIGRAD_MAKE(float)
MPIGRAD_MAKE(double)
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(Float16)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
