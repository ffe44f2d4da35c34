// Pooling. A thread makes V neighbouring channels of one output (of one input in the adjoints, which gather, so that nothing is
// added atomically and results are the same in every run).

#include "framework/cuda/element.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/cuda/window_kernels.h"

namespace mpigrad::cuda {
namespace {

// Extents of one axis have 32 bits; only places in memory have 64.
struct Axis {
  int in, out, kernel, stride, dilation, low;
};
struct Windows {
  Axis d, h, w;
  std::int64_t rows;  // of the result: batch x depth x height
  unsigned packs;     // of channels
  unsigned items;     // of a row of the result
};

struct Taps {
  int begin, end, start;  // tap t reads input start + t * dilation
};
__device__ inline Taps taps_of(const Axis& a, int o) {
  const int start = o * a.stride - a.low;
  const Range range = inside(start, a.dilation, a.kernel, a.in);
  return {static_cast<int>(range.begin), static_cast<int>(range.end), start};
}
// The output whose tap t reads input i, or -1.
__device__ inline int output_at(const Axis& a, int i, int t) {
  const int position = i + a.low - t * a.dilation;
  if (position < 0) return -1;
  const int o = position / a.stride;
  return o < a.out && o * a.stride == position ? o : -1;
}

// Row and item of the result -> its coordinates.
struct Place {
  std::int64_t n;
  int d, h, w;
  unsigned pack;
};
__device__ inline Place place_of(const Windows& p, std::int64_t row, unsigned item, int depth, int height) {
  const std::int64_t planes = row / height;
  const unsigned w = item / p.packs;
  return {planes / depth, static_cast<int>(planes % depth), static_cast<int>(row % height), static_cast<int>(w),
          item - w * p.packs};
}
__device__ inline std::int64_t pack_index(const Windows& p, std::int64_t n, int depth, int height, int width, int d, int h, int w,
                                          unsigned pack) {
  return (((n * depth + d) * height + h) * width + w) * p.packs + pack;
}

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

// for (taps that an output has at input i) f(tap, outputs' coordinates)
template <class F>
__device__ inline void for_outputs(const Windows& p, const Place& i, const F& f) {
  for (int a = 0; a < p.d.kernel; ++a) {
    const int od = output_at(p.d, i.d, a);
    if (od < 0) continue;
    for (int b = 0; b < p.h.kernel; ++b) {
      const int oh = output_at(p.h, i.h, b);
      if (oh < 0) continue;
      for (int c = 0; c < p.w.kernel; ++c) {
        const int ow = output_at(p.w, i.w, c);
        if (ow >= 0) f((a * p.h.kernel + b) * p.w.kernel + c, od, oh, ow);
      }
    }
  }
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

Windows windows_of(const PoolProblem& p, const Extent3& result, int v) {
  const auto axis = [&](std::size_t a) {
    return Axis{static_cast<int>(p.in[a]),     static_cast<int>(p.out[a]),      static_cast<int>(p.kernel[a]),
                static_cast<int>(p.stride[a]), static_cast<int>(p.dilation[a]), static_cast<int>(p.pad_low[a])};
  };
  const auto packs = static_cast<unsigned>(p.channels / v);
  return {axis(0), axis(1), axis(2), p.batch * result[0] * result[1], packs, static_cast<unsigned>(result[2]) * packs};
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

template <class T>
Compute<T> mean_scale(const PoolProblem& p) {
  return static_cast<Compute<T>>(1.0 / static_cast<double>(volume(p.kernel)));
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
