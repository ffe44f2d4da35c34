// Average pooling after a LeakyReLU, and its adjoint, which needs only the signs of the input. A thread computes eight
// neighbouring channels, whose signs are one byte. Sums are formed plane by plane, so that they are equal to those of threads
// that march along the depth (leaky_pool_march.cuh).

#include "ops/pool/leaky_pool_march.cuh"

namespace mpigrad::cuda {
namespace {

// Sums of eight channels over the pixels of a window; each(pixel, values) changes them first.
template <class Form, bool whole, class T, class F>
__device__ inline void sum_window(const Windows& p, const Place& o, int channels, const T* x, const F& each,
                                  Compute<T> (&sum)[8]) {
  const int first = o.pack * 8;
  Compute<T> plane[8] = {};
  const auto add_pixel = [&](int, std::int64_t pixel) {
    Compute<T> values[8];
    load_octet<whole>(x + pixel * channels + first, channels - first, values);
    each(pixel, values);
    add(values, plane);
  };
  for_taps<Form>(p, o, add_pixel, [&] { add_plane(plane, sum); });
}

template <bool whole, class T>
__device__ inline void store_mean(const Windows& p, std::int64_t row, const Place& o, int channels, Compute<T> scale,
                                  Compute<T> (&sum)[8], T* y) {
#pragma unroll
  for (auto& value : sum) value *= scale;
  const int first = o.pack * 8;
  store_octet<whole>(sum, channels - first, y + (row * p.w.out + o.w) * channels + first);
}

// owned_inputs() of ops/kernel/problems.h for kernels.
template <class Form>
__device__ inline Range owned_by(const Axis& a, int o) {
  const auto first = [&](int at) {
    const int start = at * Form::stride(a) - a.low;
    return at == 0 ? 0 : at == a.out ? a.in : start < 0 ? 0 : start > a.in ? a.in : start;
  };
  return {first(o), first(o + 1)};
}

template <class Form, bool whole, class T>
__global__ void leaky_forward_kernel(Windows p, int channels, scalar::LeakyRelu f, Compute<T> scale, const T* x, T* y,
                                     std::uint8_t* signs) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item);
    Compute<T> sum[8] = {};
    const auto leaky = [&](std::int64_t, Compute<T>(&values)[8]) {
#pragma unroll
      for (auto& value : values) value = f(value);
    };
    sum_window<Form, whole>(p, o, channels, x, leaky, sum);
    store_mean<whole>(p, row, o, channels, scale, sum, y);
    // Most of these inputs were read for the window above.
    const Range d = owned_by<Form>(p.d, o.d), h = owned_by<Form>(p.h, o.h), w = owned_by<Form>(p.w, o.w);
    const int first = o.pack * 8;
    for (auto i = d.begin; i < d.end; ++i)
      for (auto j = h.begin; j < h.end; ++j)
        for (auto k = w.begin; k < w.end; ++k) {
          const auto pixel = ((o.n * p.d.in + i) * p.h.in + j) * p.w.in + k;
          Compute<T> values[8];
          load_octet<whole>(x + pixel * channels + first, channels - first, values);
          unsigned byte = 0;
#pragma unroll
          for (int c = 0; c < 8; ++c) byte |= (values[c] <= Compute<T>{} ? 0U : 1U) << c;
          signs[pixel * p.packs.divisor() + o.pack] = static_cast<std::uint8_t>(byte);
        }
  });
}

template <class Form, bool whole, class T>
__global__ void signed_forward_kernel(Windows p, int channels, scalar::LeakyReluAdjoint f, Compute<T> scale, const T* x,
                                      const std::uint8_t* signs, T* y) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item);
    Compute<T> sum[8] = {};
    const auto selected = [&](std::int64_t pixel, Compute<T>(&values)[8]) {
      select(f, signs[pixel * p.packs.divisor() + o.pack], values);
    };
    sum_window<Form, whole>(p, o, channels, x, selected, sum);
    store_mean<whole>(p, row, o, channels, scale, sum, y);
  });
}

template <class Form, bool whole, class T>
__global__ void leaky_adjoint_kernel(Windows p, int channels, scalar::LeakyReluAdjoint f, Compute<T> scale, const T* gy,
                                     const std::uint8_t* signs, T* gx) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place i = place_of(p, row, item);
    const int first = i.pack * 8;
    Compute<T> sum[8] = {}, plane[8] = {};
    const auto add_pixel = [&](int, std::int64_t pixel) {
      Compute<T> values[8];
      load_octet<whole>(gy + pixel * channels + first, channels - first, values);
      add(values, plane);
    };
    for_outputs<Form>(p, i, add_pixel, [&] { add_plane(plane, sum); });
#pragma unroll
    for (auto& value : sum) value *= scale;
    select(f, signs[row * p.items + item], sum);
    store_octet<whole>(sum, channels - first, gx + (row * p.w.in + i.w) * channels + first);
  });
}

// run(windows, grid, whole, form)
template <class F>
void over_octets(const PoolProblem& p, const Extent3& result, PoolKernels wanted, const void* a, const void* b, const F& run) {
  if (p.batch * volume(result) * p.channels == 0) return;
  const auto windows = windows_of(p, result, 8);
  const auto grid = row_grid(windows.rows, windows.items);
  with_form(p, wanted, [&](auto form) {
    if (p.channels % 8 == 0 && aligned_to(a, 16) && aligned_to(b, 16)) run(windows, grid, std::true_type{}, form);
    else run(windows, grid, std::false_type{}, form);
  });
}

}  // namespace

template <class T>
void leaky_avg_pool(const PoolProblem& p, scalar::Fused fused, const T* x, T* y, std::uint8_t* signs, void* stream,
                    PoolKernels wanted) {
  // For 16-bit types marching took 1.15 times as long as one thread per output (H200, 128^3 x 16); double sums would not fit into
  // registers.
  if constexpr (sizeof(T) == 4)
    if (marches(p, wanted, x, y)) return leaky_avg_pool_march(p, fused, x, y, signs, stream, wanted);
  over_octets(p, p.out, wanted, x, y, [&](const Windows& w, const RowGrid& g, auto whole, auto form) {
    launch("leaky_avg_pool", leaky_forward_kernel<decltype(form), decltype(whole)::value, T>, g.grid, g.block, stream, w,
           static_cast<int>(p.channels), scalar::LeakyRelu{fused}, mean_scale<T>(p), x, y, signs);
  });
}
template <class T>
void signed_avg_pool(const PoolProblem& p, scalar::Fused fused, const T* x, const std::uint8_t* signs, T* y, void* stream,
                     PoolKernels wanted) {
  over_octets(p, p.out, wanted, x, y, [&](const Windows& w, const RowGrid& g, auto whole, auto form) {
    launch("signed_avg_pool", signed_forward_kernel<decltype(form), decltype(whole)::value, T>, g.grid, g.block, stream, w,
           static_cast<int>(p.channels), scalar::LeakyReluAdjoint{fused}, mean_scale<T>(p), x, signs, y);
  });
}
template <class T>
void leaky_avg_pool_adjoint(const PoolProblem& p, scalar::Fused fused, const T* gy, const std::uint8_t* signs, T* gx,
                            void* stream, PoolKernels wanted) {
  if constexpr (sizeof(T) <= 4)
    if (marches(p, wanted, gy, gx)) return leaky_avg_pool_adjoint_march(p, fused, gy, signs, gx, stream, wanted);
  over_octets(p, p.in, wanted, gy, gx, [&](const Windows& w, const RowGrid& g, auto whole, auto form) {
    launch("leaky_avg_pool_adjoint", leaky_adjoint_kernel<decltype(form), decltype(whole)::value, T>, g.grid, g.block, stream, w,
           static_cast<int>(p.channels), scalar::LeakyReluAdjoint{fused}, mean_scale<T>(p), gy, signs, gx);
  });
}

#define MPIGRAD_MAKE(T)                                                                                                    \
  template void leaky_avg_pool(const PoolProblem&, scalar::Fused, const T*, T*, std::uint8_t*, void*, PoolKernels);        \
  template void signed_avg_pool(const PoolProblem&, scalar::Fused, const T*, const std::uint8_t*, T*, void*, PoolKernels); \
  template void leaky_avg_pool_adjoint(const PoolProblem&, scalar::Fused, const T*, const std::uint8_t*, T*, void*, PoolKernels);
MPIGRAD_MAKE(float)
MPIGRAD_MAKE(double)
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(Float16)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
