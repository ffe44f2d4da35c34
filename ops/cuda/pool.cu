// Pooling. A thread makes V neighbouring channels of one output (of one input in the adjoints, which gather, so that nothing is
// added atomically and results are the same in every run).

#include "ops/cuda/window_kernels.h"
#include "ops/cuda/windows.cuh"

namespace mpigrad::cuda {
namespace {

template <class T, int V>
__global__ void avg_forward_kernel(Windows p, Compute<T> scale, const Pack<T, V>* x, Pack<T, V>* y) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item, p.d.out, p.h.out);
    const Taps d = taps_of(p.d, o.d), h = taps_of(p.h, o.h), w = taps_of(p.w, o.w);
    Compute<T> sum[V] = {};
    for (int i = d.begin; i < d.end; ++i)
      for (int j = h.begin; j < h.end; ++j)
        for (int k = w.begin; k < w.end; ++k) {
          const auto in = x[pack_index(p, o.n, p.d.in, p.h.in, p.w.in, d.start + i * p.d.dilation, h.start + j * p.h.dilation,
                                       w.start + k * p.w.dilation, o.pack)];
#pragma unroll
          for (int c = 0; c < V; ++c) sum[c] += load(in.of[c]);
        }
    Pack<T, V> result;
#pragma unroll
    for (int c = 0; c < V; ++c) result.of[c] = store<T>(scale * sum[c]);
    y[row * p.items + item] = result;
  });
}

template <class T, int V>
__global__ void avg_adjoint_kernel(Windows p, Compute<T> scale, const Pack<T, V>* gy, Pack<T, V>* gx) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place i = place_of(p, row, item, p.d.in, p.h.in);
    Compute<T> sum[V] = {};
    for_outputs(p, i, [&](int, int od, int oh, int ow) {
      const auto g = gy[pack_index(p, i.n, p.d.out, p.h.out, p.w.out, od, oh, ow, i.pack)];
#pragma unroll
      for (int c = 0; c < V; ++c) sum[c] += load(g.of[c]);
    });
    Pack<T, V> result;
#pragma unroll
    for (int c = 0; c < V; ++c) result.of[c] = store<T>(scale * sum[c]);
    gx[row * p.items + item] = result;
  });
}

template <class T, int V>
__global__ void max_forward_kernel(Windows p, const Pack<T, V>* x, Pack<T, V>* y, Pack<std::int32_t, V>* winner) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item, p.d.out, p.h.out);
    const Taps d = taps_of(p.d, o.d), h = taps_of(p.h, o.h), w = taps_of(p.w, o.w);
    Compute<T> best[V];
    Pack<std::int32_t, V> place;
#pragma unroll
    for (int c = 0; c < V; ++c) {
      best[c] = -static_cast<Compute<T>>(INFINITY);
      place.of[c] = -1;
    }
    for (int i = d.begin; i < d.end; ++i)
      for (int j = h.begin; j < h.end; ++j)
        for (int k = w.begin; k < w.end; ++k) {
          const int tap = (i * p.h.kernel + j) * p.w.kernel + k;
          const auto in = x[pack_index(p, o.n, p.d.in, p.h.in, p.w.in, d.start + i * p.d.dilation, h.start + j * p.h.dilation,
                                       w.start + k * p.w.dilation, o.pack)];
#pragma unroll
          for (int c = 0; c < V; ++c) {
            // A value takes the place if there is none yet, if it is larger, or if it is the first NaN.
            const Compute<T> v = load(in.of[c]), b = best[c];
            const bool take = place.of[c] < 0 || v > b || (v != v && b == b);
            best[c] = take ? v : b;
            place.of[c] = take ? tap : place.of[c];
          }
        }
    Pack<T, V> result;
#pragma unroll
    for (int c = 0; c < V; ++c) result.of[c] = store<T>(best[c]);
    y[row * p.items + item] = result;
    winner[row * p.items + item] = place;
  });
}

template <class T, int V>
__global__ void max_scatter_kernel(Windows p, const Pack<T, V>* gy, const Pack<std::int32_t, V>* winner, Pack<T, V>* gx) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place i = place_of(p, row, item, p.d.in, p.h.in);
    Compute<T> sum[V] = {};
    for_outputs(p, i, [&](int tap, int od, int oh, int ow) {
      const auto at = pack_index(p, i.n, p.d.out, p.h.out, p.w.out, od, oh, ow, i.pack);
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

template <class T, int V>
__global__ void max_gather_kernel(Windows p, const T* x, const Pack<std::int32_t, V>* winner, Pack<T, V>* y) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item, p.d.out, p.h.out);
    const auto place = winner[row * p.items + item];
    Pack<T, V> result;
#pragma unroll
    for (int c = 0; c < V; ++c) {
      result.of[c] = store<T>(Compute<T>{});
      const int tap = place.of[c];
      if (tap < 0) continue;
      const int line = tap / p.w.kernel, k = tap - line * p.w.kernel, i = line / p.h.kernel, j = line - i * p.h.kernel;
      const auto at =
          pack_index(p, o.n, p.d.in, p.h.in, p.w.in, o.d * p.d.stride - p.d.low + i * p.d.dilation,
                     o.h * p.h.stride - p.h.low + j * p.h.dilation, o.w * p.w.stride - p.w.low + k * p.w.dilation, o.pack);
      result.of[c] = x[at * V + c];
    }
    y[row * p.items + item] = result;
  });
}

// f(windows, grid, V) with as many channels to a thread as their number and the addresses allow.
template <class T, class F>
void over_windows(const PoolProblem& p, const Extent3& result, bool can_pack, const F& f) {
  if (p.batch * volume(result) * p.channels == 0) return;
  constexpr int wide = sizeof(T) == 8 ? 2 : 4;
  const auto run = [&](auto v) {
    const auto windows = windows_of(p, result, decltype(v)::value);
    f(windows, row_grid(windows.rows, windows.items), v);
  };
  if (can_pack && p.channels % wide == 0) run(std::integral_constant<int, wide>{});
  else run(std::integral_constant<int, 1>{});
}

template <class T, class... P>
bool can_pack(const P*... pointers) {
  constexpr std::size_t wide = sizeof(T) == 8 ? 2 : 4;
  return (aligned_to(pointers, wide * sizeof(P)) && ...);
}

template <int V, class T>
const Pack<T, V>* packs(const T* pointer) {
  return reinterpret_cast<const Pack<T, V>*>(pointer);
}
template <int V, class T>
Pack<T, V>* packs(T* pointer) {
  return reinterpret_cast<Pack<T, V>*>(pointer);
}

}  // namespace

template <class T>
void avg_pool_forward(const PoolProblem& p, const T* x, T* y, void* stream) {
  over_windows<T>(p, p.out, can_pack<T>(x, y), [&](const Windows& w, const RowGrid& g, auto v) {
    constexpr int V = decltype(v)::value;
    launch("avg_pool", avg_forward_kernel<T, V>, g.grid, g.block, stream, w, mean_scale<T>(p), packs<V>(x), packs<V>(y));
  });
}
template <class T>
void avg_pool_adjoint(const PoolProblem& p, const T* gy, T* gx, void* stream) {
  over_windows<T>(p, p.in, can_pack<T>(gy, gx), [&](const Windows& w, const RowGrid& g, auto v) {
    constexpr int V = decltype(v)::value;
    launch("avg_pool_adjoint", avg_adjoint_kernel<T, V>, g.grid, g.block, stream, w, mean_scale<T>(p), packs<V>(gy),
           packs<V>(gx));
  });
}
template <class T>
void max_pool_forward(const PoolProblem& p, const T* x, T* y, std::int32_t* winner, void* stream) {
  over_windows<T>(p, p.out, can_pack<T>(x, y, winner), [&](const Windows& w, const RowGrid& g, auto v) {
    constexpr int V = decltype(v)::value;
    launch("max_pool", max_forward_kernel<T, V>, g.grid, g.block, stream, w, packs<V>(x), packs<V>(y), packs<V>(winner));
  });
}
template <class T>
void max_pool_scatter(const PoolProblem& p, const T* gy, const std::int32_t* winner, T* gx, void* stream) {
  over_windows<T>(p, p.in, can_pack<T>(gy, gx, winner), [&](const Windows& w, const RowGrid& g, auto v) {
    constexpr int V = decltype(v)::value;
    launch("max_pool_scatter", max_scatter_kernel<T, V>, g.grid, g.block, stream, w, packs<V>(gy), packs<V>(winner),
           packs<V>(gx));
  });
}
template <class T>
void max_pool_gather(const PoolProblem& p, const T* x, const std::int32_t* winner, T* y, void* stream) {
  over_windows<T>(p, p.out, can_pack<T>(y, winner), [&](const Windows& w, const RowGrid& g, auto v) {
    constexpr int V = decltype(v)::value;
    launch("max_pool_gather", max_gather_kernel<T, V>, g.grid, g.block, stream, w, x, packs<V>(winner), packs<V>(y));
  });
}

#define MPIGRAD_MAKE(T)                                                                         \
  template void avg_pool_forward(const PoolProblem&, const T*, T*, void*);                      \
  template void avg_pool_adjoint(const PoolProblem&, const T*, T*, void*);                      \
  template void max_pool_forward(const PoolProblem&, const T*, T*, std::int32_t*, void*);       \
  template void max_pool_scatter(const PoolProblem&, const T*, const std::int32_t*, T*, void*); \
  template void max_pool_gather(const PoolProblem&, const T*, const std::int32_t*, T*, void*);
MPIGRAD_MAKE(float)
MPIGRAD_MAKE(double)
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(Float16)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
