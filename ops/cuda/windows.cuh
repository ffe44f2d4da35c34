#pragma once
// Windows in kernels: which inputs an output reads, and which outputs read an input. A thread makes neighbouring channels of one
// output, or of one input in the adjoints, which gather.

#include "framework/cuda/element.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/problems.h"

namespace mpigrad::cuda {

using namespace kernel;

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
__device__ inline std::int64_t pixel_index(std::int64_t n, int depth, int height, int width, int d, int h, int w) {
  return ((n * depth + d) * height + h) * width + w;
}
__device__ inline std::int64_t pack_index(const Windows& p, std::int64_t n, int depth, int height, int width, int d, int h, int w,
                                          unsigned pack) {
  return pixel_index(n, depth, height, width, d, h, w) * p.packs + pack;
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

// `v` channels to a pack; the last one may have fewer.
inline Windows windows_of(const PoolProblem& p, const Extent3& result, int v) {
  const auto axis = [&](std::size_t a) {
    return Axis{static_cast<int>(p.in[a]),     static_cast<int>(p.out[a]),      static_cast<int>(p.kernel[a]),
                static_cast<int>(p.stride[a]), static_cast<int>(p.dilation[a]), static_cast<int>(p.pad_low[a])};
  };
  const auto packs = static_cast<unsigned>((p.channels + v - 1) / v);
  return {axis(0), axis(1), axis(2), p.batch * result[0] * result[1], packs, static_cast<unsigned>(result[2]) * packs};
}

template <class T>
Compute<T> mean_scale(const PoolProblem& p) {
  return static_cast<Compute<T>>(1.0 / static_cast<double>(volume(p.kernel)));
}

}  // namespace mpigrad::cuda
