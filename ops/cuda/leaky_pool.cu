// Average pooling behind a LeakyReLU, and its adjoint, which needs nothing but the signs of what came in. A thread makes eight
// neighbouring channels, whose signs are one byte.

#include "framework/cuda/launch.cuh"
#include "ops/cuda/window_kernels.h"
#include "ops/cuda/windows.cuh"
#include "ops/scalar.h"

namespace mpigrad::cuda {
namespace {

// Eight channels, 16 bytes at a time if `whole`; else those of them that are among the next `rest`, one by one, and zeros.
template <class T>
struct alignas(16) Octet {
  T of[8];
};
template <bool whole, class T>
__device__ inline void load_octet(const T* from, int rest, Compute<T> (&to)[8]) {
  if constexpr (whole) {
    const auto octet = *reinterpret_cast<const Octet<T>*>(from);
#pragma unroll
    for (int c = 0; c < 8; ++c) to[c] = load(octet.of[c]);
  } else {
    for (int c = 0; c < 8; ++c) to[c] = c < rest ? load(from[c]) : Compute<T>{};
  }
}
template <bool whole, class T>
__device__ inline void store_octet(const Compute<T> (&from)[8], int rest, T* to) {
  if constexpr (whole) {
    Octet<T> octet;
#pragma unroll
    for (int c = 0; c < 8; ++c) octet.of[c] = store<T>(from[c]);
    *reinterpret_cast<Octet<T>*>(to) = octet;
  } else {
    for (int c = 0; c < 8 && c < rest; ++c) to[c] = store<T>(from[c]);
  }
}

// values[c] *= slope where bit c of `signs` is not set
template <class C>
__device__ inline void select(const scalar::LeakyReluAdjoint& f, unsigned signs, C (&values)[8]) {
#pragma unroll
  for (int c = 0; c < 8; ++c) values[c] = f(values[c], C((signs >> c & 1U) != 0));
}

// Sums of eight channels of the pixels of a window; each(pixel, values) changes them first.
template <bool whole, class T, class F>
__device__ inline void sum_window(const Windows& p, const Place& o, int channels, const T* x, const F& each,
                                  Compute<T> (&sum)[8]) {
  const Taps d = taps_of(p.d, o.d), h = taps_of(p.h, o.h), w = taps_of(p.w, o.w);
  const int first = static_cast<int>(o.pack) * 8;
  for (int i = d.begin; i < d.end; ++i)
    for (int j = h.begin; j < h.end; ++j)
      for (int k = w.begin; k < w.end; ++k) {
        const auto pixel = pixel_index(o.n, p.d.in, p.h.in, p.w.in, d.start + i * p.d.dilation, h.start + j * p.h.dilation,
                                       w.start + k * p.w.dilation);
        Compute<T> values[8];
        load_octet<whole>(x + pixel * channels + first, channels - first, values);
        each(pixel, values);
#pragma unroll
        for (int c = 0; c < 8; ++c) sum[c] += values[c];
      }
}

template <bool whole, class T>
__device__ inline void store_mean(const Windows& p, std::int64_t row, const Place& o, int channels, Compute<T> scale,
                                  Compute<T> (&sum)[8], T* y) {
#pragma unroll
  for (auto& value : sum) value *= scale;
  const int first = static_cast<int>(o.pack) * 8;
  store_octet<whole>(sum, channels - first, y + (row * p.w.out + o.w) * channels + first);
}

// As owned_inputs of ops/problems.h.
__device__ inline Range owned_by(const Axis& a, int o) {
  const auto first = [&](int at) {
    const int start = at * a.stride - a.low;
    return at == 0 ? 0 : at == a.out ? a.in : start < 0 ? 0 : start > a.in ? a.in : start;
  };
  return {first(o), first(o + 1)};
}

template <bool whole, class T>
__global__ void leaky_forward_kernel(Windows p, int channels, scalar::LeakyRelu f, Compute<T> scale, const T* x, T* y,
                                     std::uint8_t* signs) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item, p.d.out, p.h.out);
    Compute<T> sum[8] = {};
    const auto leaky = [&](std::int64_t, Compute<T>(&values)[8]) {
#pragma unroll
      for (auto& value : values) value = f(value);
    };
    sum_window<whole>(p, o, channels, x, leaky, sum);
    store_mean<whole>(p, row, o, channels, scale, sum, y);
    // Most of these inputs were in the window just now.
    const Range d = owned_by(p.d, o.d), h = owned_by(p.h, o.h), w = owned_by(p.w, o.w);
    const int first = static_cast<int>(o.pack) * 8;
    for (auto i = d.begin; i < d.end; ++i)
      for (auto j = h.begin; j < h.end; ++j)
        for (auto k = w.begin; k < w.end; ++k) {
          const auto pixel =
              pixel_index(o.n, p.d.in, p.h.in, p.w.in, static_cast<int>(i), static_cast<int>(j), static_cast<int>(k));
          Compute<T> values[8];
          load_octet<whole>(x + pixel * channels + first, channels - first, values);
          unsigned byte = 0;
#pragma unroll
          for (int c = 0; c < 8; ++c) byte |= (values[c] <= Compute<T>{} ? 0U : 1U) << c;
          signs[pixel * p.packs + o.pack] = static_cast<std::uint8_t>(byte);
        }
  });
}

template <bool whole, class T>
__global__ void signed_forward_kernel(Windows p, int channels, scalar::LeakyReluAdjoint f, Compute<T> scale, const T* x,
                                      const std::uint8_t* signs, T* y) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item, p.d.out, p.h.out);
    Compute<T> sum[8] = {};
    const auto selected = [&](std::int64_t pixel, Compute<T>(&values)[8]) { select(f, signs[pixel * p.packs + o.pack], values); };
    sum_window<whole>(p, o, channels, x, selected, sum);
    store_mean<whole>(p, row, o, channels, scale, sum, y);
  });
}

template <bool whole, class T>
__global__ void leaky_adjoint_kernel(Windows p, int channels, scalar::LeakyReluAdjoint f, Compute<T> scale, const T* gy,
                                     const std::uint8_t* signs, T* gx) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place i = place_of(p, row, item, p.d.in, p.h.in);
    const int first = static_cast<int>(i.pack) * 8;
    Compute<T> sum[8] = {};
    for_outputs(p, i, [&](int, int od, int oh, int ow) {
      Compute<T> values[8];
      load_octet<whole>(gy + pixel_index(i.n, p.d.out, p.h.out, p.w.out, od, oh, ow) * channels + first, channels - first,
                        values);
#pragma unroll
      for (int c = 0; c < 8; ++c) sum[c] += values[c];
    });
#pragma unroll
    for (auto& value : sum) value *= scale;
    select(f, signs[row * p.items + item], sum);
    store_octet<whole>(sum, channels - first, gx + (row * p.w.in + i.w) * channels + first);
  });
}

// run(windows, grid, whole)
template <class F>
void over_octets(const PoolProblem& p, const Extent3& result, const void* a, const void* b, const F& run) {
  if (p.batch * volume(result) * p.channels == 0) return;
  const auto windows = windows_of(p, result, 8);
  const auto grid = row_grid(windows.rows, windows.items);
  if (p.channels % 8 == 0 && aligned_to(a, 16) && aligned_to(b, 16)) run(windows, grid, std::true_type{});
  else run(windows, grid, std::false_type{});
}

}  // namespace

template <class T>
void leaky_avg_pool(const PoolProblem& p, double slope, const T* x, T* y, std::uint8_t* signs, void* stream) {
  over_octets(p, p.out, x, y, [&](const Windows& w, const RowGrid& g, auto whole) {
    launch("leaky_avg_pool", leaky_forward_kernel<decltype(whole)::value, T>, g.grid, g.block, stream, w,
           static_cast<int>(p.channels), scalar::LeakyRelu{slope}, mean_scale<T>(p), x, y, signs);
  });
}
template <class T>
void signed_avg_pool(const PoolProblem& p, double slope, const T* x, const std::uint8_t* signs, T* y, void* stream) {
  over_octets(p, p.out, x, y, [&](const Windows& w, const RowGrid& g, auto whole) {
    launch("signed_avg_pool", signed_forward_kernel<decltype(whole)::value, T>, g.grid, g.block, stream, w,
           static_cast<int>(p.channels), scalar::LeakyReluAdjoint{slope}, mean_scale<T>(p), x, signs, y);
  });
}
template <class T>
void leaky_avg_pool_adjoint(const PoolProblem& p, double slope, const T* gy, const std::uint8_t* signs, T* gx, void* stream) {
  over_octets(p, p.in, gy, gx, [&](const Windows& w, const RowGrid& g, auto whole) {
    launch("leaky_avg_pool_adjoint", leaky_adjoint_kernel<decltype(whole)::value, T>, g.grid, g.block, stream, w,
           static_cast<int>(p.channels), scalar::LeakyReluAdjoint{slope}, mean_scale<T>(p), gy, signs, gx);
  });
}

#define MPIGRAD_MAKE(T)                                                                                \
  template void leaky_avg_pool(const PoolProblem&, double, const T*, T*, std::uint8_t*, void*);        \
  template void signed_avg_pool(const PoolProblem&, double, const T*, const std::uint8_t*, T*, void*); \
  template void leaky_avg_pool_adjoint(const PoolProblem&, double, const T*, const std::uint8_t*, T*, void*);
MPIGRAD_MAKE(float)
MPIGRAD_MAKE(double)
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(Float16)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
