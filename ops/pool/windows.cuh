#pragma once
// Windows in kernels: the inputs that an output reads, and the outputs that read an input. A thread computes neighbouring
// channels of one output, or of one input in the adjoints, which gather. Kernels are compiled for the forms of windows in most
// networks, which need only divisions by powers of two, and for windows of any form, with the same taps in the same order.

#include "framework/cuda/element.cuh"
#include "framework/tensor/strided.h"
#include "ops/kernel/divide.h"
#include "ops/kernel/problems.h"
#include "ops/kernel/rows.cuh"
#include "ops/pool/pool_cuda.h"

namespace mpigrad::cuda {

using namespace kernel;

// Extents of one axis have 31 bits; only offsets in memory have 64.
struct Axis {
  int in, out, low;
  FastDivideInt kernel, stride, dilation;
};
struct Windows {
  Axis d, h, w;
  std::int64_t rows;         // of the result: batch x depth x height
  FastDivide depth, height;  // of the result
  FastDivideInt packs;       // of channels
  unsigned items;            // of a row of the result
};

// Cubes of K inputs with stride S and dilation 1; K == 0: the values in Axis.
template <int K, int S>
struct WindowForm {
  static constexpr bool known = K > 0;
  static constexpr int size = K, step = S;
  __device__ static int kernel(const Axis& a) { return known ? K : a.kernel.divisor(); }
  __device__ static int stride(const Axis& a) { return known ? S : a.stride.divisor(); }
  __device__ static int dilation(const Axis& a) { return known ? 1 : a.dilation.divisor(); }
};
using AnyForm = WindowForm<0, 0>;

// ---- the inputs of an output

// The taps inside the input: tap t of [begin, end) reads input start + t * dilation.
struct Taps {
  int begin, end, start;
};
template <class Form>
__device__ inline Taps taps_of(const Axis& a, int o) {
  const int start = o * Form::stride(a) - a.low;
  if constexpr (Form::known) {
    return {max(0, -start), min(Form::size, a.in - start), start};
  } else {
    const int begin = start < 0 ? a.dilation.quotient(-start + a.dilation.divisor() - 1) : 0, last = a.in - 1 - start;
    return {begin, last < 0 ? 0 : min(a.kernel.divisor(), a.dilation.quotient(last) + 1), start};
  }
}

// Coordinates of a row and an item of the result.
struct Place {
  std::int64_t n;
  int d, h, w, pack;
};
__device__ inline Place place_of(const Windows& p, std::int64_t row, unsigned item) {
  const std::int64_t plane = p.height.quotient(row), n = p.depth.quotient(plane);
  const int w = p.packs.quotient(static_cast<int>(item));
  return {n, static_cast<int>(plane - n * p.depth.divisor()), static_cast<int>(row - plane * p.height.divisor()), w,
          static_cast<int>(item) - w * p.packs.divisor()};
}

// for (taps inside of output o's window) f(tap, index of the input's pixel); after each plane of them end_of_plane()
template <class Form, class F, class G>
__device__ inline void for_taps(const Windows& p, const Place& o, const F& f, const G& end_of_plane) {
  const Taps d = taps_of<Form>(p.d, o.d), h = taps_of<Form>(p.h, o.h), w = taps_of<Form>(p.w, o.w);
  for (int i = d.begin; i < d.end; ++i) {
    const std::int64_t plane = (o.n * p.d.in + (d.start + i * Form::dilation(p.d))) * p.h.in;
    for (int j = h.begin; j < h.end; ++j) {
      const std::int64_t line = (plane + (h.start + j * Form::dilation(p.h))) * p.w.in + w.start;
      const int first = (i * Form::kernel(p.h) + j) * Form::kernel(p.w);
      if constexpr (Form::known) {
#pragma unroll
        for (int k = 0; k < Form::size; ++k)
          if (k >= w.begin && k < w.end) f(first + k, line + k);
      } else {
        for (int k = w.begin; k < w.end; ++k) f(first + k, line + k * Form::dilation(p.w));
      }
    }
    end_of_plane();
  }
}
template <class Form, class F>
__device__ inline void for_taps(const Windows& p, const Place& o, const F& f) {
  for_taps<Form>(p, o, f, [] {});
}

// The pixel that tap number `tap` of output o's window reads.
template <class Form>
__device__ inline std::int64_t input_of(const Windows& p, const Place& o, int tap) {
  const auto rows = [](const Axis& a, int n) {
    if constexpr (Form::known) return n / Form::size;
    else return a.kernel.quotient(n);
  };
  const auto at = [](const Axis& a, int out, int t) { return out * Form::stride(a) - a.low + t * Form::dilation(a); };
  const int line = rows(p.w, tap), i = rows(p.h, line), j = line - i * Form::kernel(p.h), k = tap - line * Form::kernel(p.w);
  return ((o.n * p.d.in + at(p.d, o.d, i)) * p.h.in + at(p.h, o.h, j)) * p.w.in + at(p.w, o.w, k);
}

// ---- the outputs of an input

// The output whose tap t reads input i, or -1.
__device__ inline int output_at(const Axis& a, int i, int t) {
  const int position = i + a.low - t * a.dilation.divisor();
  if (position < 0) return -1;
  const int o = a.stride.quotient(position);
  return o < a.out && o * a.stride.divisor() == position ? o : -1;
}

// For a known form, at most `most` outputs along an axis read input i: output `first` - j, if has[j], reads it with tap `tap` + j
// * step.
template <class Form>
struct Readers {
  static constexpr int most = (Form::size + Form::step - 1) / Form::step;
  int first, tap;
  bool has[most];
  __device__ Readers(const Axis& a, int i) {
    const int position = i + a.low;
    first = position / Form::step;
    tap = position - first * Form::step;
#pragma unroll
    for (int j = 0; j < most; ++j)
      has[j] = position >= 0 && tap + j * Form::step < Form::size && first - j >= 0 && first - j < a.out;
  }
};

// for (taps that an output has at input i, in their order) f(tap, index of the output's pixel); after each plane of outputs
// end_of_plane()
template <class Form, class F, class G>
__device__ inline void for_outputs(const Windows& p, const Place& i, const F& f, const G& end_of_plane) {
  if constexpr (Form::known) {
    constexpr int K = Form::size, S = Form::step;
    using Along = Readers<Form>;
    const Along d(p.d, i.d), h(p.h, i.h), w(p.w, i.w);
#pragma unroll
    for (int a = 0; a < Along::most; ++a) {
      if (!d.has[a]) continue;
      const std::int64_t plane = (i.n * p.d.out + (d.first - a)) * p.h.out;
#pragma unroll
      for (int b = 0; b < Along::most; ++b) {
        if (!h.has[b]) continue;
        const std::int64_t line = (plane + (h.first - b)) * p.w.out + w.first;
        const int tap = ((d.tap + a * S) * K + h.tap + b * S) * K + w.tap;
#pragma unroll
        for (int c = 0; c < Along::most; ++c)
          if (w.has[c]) f(tap + c * S, line - c);
      }
      end_of_plane();
    }
  } else {
    const int kernel_d = p.d.kernel.divisor(), kernel_h = p.h.kernel.divisor(), kernel_w = p.w.kernel.divisor();
    for (int a = 0; a < kernel_d; ++a) {
      const int od = output_at(p.d, i.d, a);
      if (od < 0) continue;
      for (int b = 0; b < kernel_h; ++b) {
        const int oh = output_at(p.h, i.h, b);
        if (oh < 0) continue;
        const std::int64_t line = ((i.n * p.d.out + od) * p.h.out + oh) * p.w.out;
        for (int c = 0; c < kernel_w; ++c) {
          const int ow = output_at(p.w, i.w, c);
          if (ow >= 0) f((a * kernel_h + b) * kernel_w + c, line + ow);
        }
      }
      end_of_plane();
    }
  }
}
template <class Form, class F>
__device__ inline void for_outputs(const Windows& p, const Place& i, const F& f) {
  for_outputs<Form>(p, i, f, [] {});
}

// ---- on the host

// Packs have `v` channels; the last pack may have fewer.
inline Windows windows_of(const PoolProblem& p, const Extent3& result, int v) {
  const auto axis = [&](std::size_t a) {
    return Axis{static_cast<int>(p.in[a]),  static_cast<int>(p.out[a]), static_cast<int>(p.pad_low[a]),
                FastDivideInt(p.kernel[a]), FastDivideInt(p.stride[a]), FastDivideInt(p.dilation[a])};
  };
  const std::int64_t packs = (p.channels + v - 1) / v;
  return {axis(0),
          axis(1),
          axis(2),
          p.batch * result[0] * result[1],
          FastDivide(result[0]),
          FastDivide(result[1]),
          FastDivideInt(packs),
          static_cast<unsigned>(result[2] * packs)};
}

// Calls f(form) for the kernel of this form of window, if there is one and it is wanted.
template <class F>
void with_form(const PoolProblem& p, PoolKernels wanted, const F& f) {
  const auto is = [&](std::int64_t k, std::int64_t s) {
    return p.kernel == Extent3{k, k, k} && p.stride == Extent3{s, s, s} && p.dilation == Extent3{1, 1, 1};
  };
  if (wanted == PoolKernels::any_form) f(AnyForm{});
  else if (is(2, 2)) f(WindowForm<2, 2>{});
  else if (is(3, 2)) f(WindowForm<3, 2>{});
  else f(AnyForm{});
}

// Calls f(windows, grid, V, form) with 16 bytes of T per thread, if the number of channels and the addresses allow it.
template <class T, class F, class... P>
void over_windows(const PoolProblem& p, const Extent3& result, PoolKernels wanted, const F& f, const P*... pointers) {
  if (p.batch * volume(result) * p.channels == 0) return;
  const auto run = [&](auto v) {
    const auto windows = windows_of(p, result, decltype(v)::value);
    with_form(p, wanted, [&](auto form) { f(windows, row_grid(windows.rows, windows.items), v, form); });
  };
  const auto fits = [&](std::size_t v) {
    return p.channels % static_cast<std::int64_t>(v) == 0 && (aligned_to(pointers, v * sizeof(P)) && ...);
  };
  constexpr int widest = static_cast<int>(16 / sizeof(T));
  if (fits(widest)) return run(std::integral_constant<int, widest>{});
  if constexpr (widest > 4)
    if (fits(4)) return run(std::integral_constant<int, 4>{});
  run(std::integral_constant<int, 1>{});
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

}  // namespace mpigrad::cuda
