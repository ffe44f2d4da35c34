#pragma once
// Average pools of cubes of 3 inputs with stride 2, after a LeakyReLU: threads march along the depth and keep the sum of the
// plane that two windows share; in the adjoint, the outputs that two planes of inputs share. An input is loaded 18 / 8 times
// instead of 35 / 8; in the adjoint an output is loaded half as often as it has inputs.

#include "ops/elementwise/scalar.h"
#include "ops/pool/windows.cuh"

namespace mpigrad::cuda {
namespace {

// ---- eight channels

template <class T>
struct alignas(16) Octet {
  T of[8];
};
// Loads eight channels: 16 bytes at a time if `whole`; else the first `rest` of them one by one, and zeros.
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

// values[c] *= factor if bit c of `signs` is 0
template <class C>
__device__ inline void select(const scalar::LeakyReluAdjoint& f, unsigned signs, C (&values)[8]) {
#pragma unroll
  for (int c = 0; c < 8; ++c) values[c] = f(values[c], C((signs >> c & 1U) != 0));
}
// Bit c is 1 if value c passes unchanged.
template <class C>
__device__ inline std::uint8_t signs_of(const C (&values)[8]) {
  unsigned byte = 0;
#pragma unroll
  for (int c = 0; c < 8; ++c) byte |= (values[c] <= C{} ? 0U : 1U) << c;
  return static_cast<std::uint8_t>(byte);
}

template <class C>
__device__ inline void add(const C (&values)[8], C (&sum)[8]) {
#pragma unroll
  for (int c = 0; c < 8; ++c) sum[c] += values[c];
}
// sum += plane; plane is reset to zero.
template <class C>
__device__ inline void add_plane(C (&plane)[8], C (&sum)[8]) {
  add(plane, sum);
#pragma unroll
  for (auto& value : plane) value = C{};
}

// ---- threads that march along the depth

struct March {
  std::int64_t rows;         // batch x parts of the depth x height
  FastDivide height, parts;  // of the march; its indices may begin above zero
  int begin_d, begin_h, begin_w, end_d, length;
  FastDivideInt packs;
  unsigned items;  // width x packs
};
struct MarchPlace {
  std::int64_t n;
  int begin, end, h, w, pack;
};
__device__ inline MarchPlace march_place(const March& m, std::int64_t row, unsigned item) {
  const std::int64_t line = m.height.quotient(row), n = m.parts.quotient(line);
  const int begin = m.begin_d + static_cast<int>(line - n * m.parts.divisor()) * m.length;
  const int w = m.packs.quotient(static_cast<int>(item));
  return {n,
          begin,
          min(begin + m.length, m.end_d),
          m.begin_h + static_cast<int>(row - line * m.height.divisor()),
          m.begin_w + w,
          static_cast<int>(item) - w * m.packs.divisor()};
}

template <class T>
__global__ void __launch_bounds__(256, 2) leaky_forward_march(Windows p, March m, int channels, scalar::LeakyRelu f,
                                                              Compute<T> scale, const T* x, T* y, std::uint8_t* signs) {
  using C = Compute<T>;
  for_rows(m.rows, m.items, [&](std::int64_t row, unsigned item) {
    const auto at = march_place(m, row, item);
    const int h = 2 * at.h - p.h.low, w = 2 * at.w - p.w.low;
    // Windows share inputs; each input is assigned to the window that begins at it or before it, the last inputs to the last
    // window.
    const int own_h = at.h + 1 == p.h.out ? 3 : 2, own_w = at.w + 1 == p.w.out ? 3 : 2;
    const auto sum_plane = [&](int d, bool owns, C(&sum)[8]) {
#pragma unroll
      for (auto& value : sum) value = C{};
      if (d < 0 || d >= p.d.in) return;
      const std::int64_t plane = (at.n * p.d.in + d) * p.h.in;
      Octet<T> octets[9];
#pragma unroll
      for (int t = 0; t < 9; ++t) {
        const int i = h + t / 3, j = w + t % 3;
        octets[t] = {};
        if (i >= 0 && i < p.h.in && j >= 0 && j < p.w.in)
          octets[t] = *reinterpret_cast<const Octet<T>*>(x + ((plane + i) * p.w.in + j) * channels + at.pack * 8);
      }
#pragma unroll
      for (int t = 0; t < 9; ++t) {
        const int i = h + t / 3, j = w + t % 3;
        C values[8];
#pragma unroll
        for (int c = 0; c < 8; ++c) values[c] = load(octets[t].of[c]);
        if (owns && t / 3 < own_h && t % 3 < own_w && i >= 0 && i < p.h.in && j >= 0 && j < p.w.in)
          signs[((plane + i) * p.w.in + j) * m.packs.divisor() + at.pack] = signs_of(values);
#pragma unroll
        for (auto& value : values) value = f(value);
        add(values, sum);
      }
    };
    C before[8], middle[8], behind[8];
    sum_plane(2 * at.begin - p.d.low, true, before);
    for (int o = at.begin; o < at.end; ++o) {
      const int d = 2 * o - p.d.low;
      sum_plane(d + 1, true, middle);
      // The first plane of the next thread's range is assigned to that thread.
      sum_plane(d + 2, o + 1 < at.end || o + 1 == p.d.out, behind);
      C sum[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) sum[c] = (before[c] + middle[c] + behind[c]) * scale, before[c] = behind[c];
      store_octet<true>(sum, 8, y + (((at.n * p.d.out + o) * p.h.out + at.h) * p.w.out + at.w) * channels + at.pack * 8);
    }
  });
}

// A thread computes two inputs along each axis, 2 number and 2 number + 1, counted from the start of the left padding. Outputs
// `number` and `number` - 1 read the first input, only output `number` reads the second.
template <class T>
__global__ void __launch_bounds__(256, 2) leaky_adjoint_march(Windows p, March m, int channels, scalar::LeakyReluAdjoint f,
                                                              Compute<T> scale, const T* gy, const std::uint8_t* signs, T* gx) {
  using C = Compute<T>;
  for_rows(m.rows, m.items, [&](std::int64_t row, unsigned item) {
    const auto at = march_place(m, row, item);
    // Sums over the outputs of a plane for the first and second inputs along height and width.
    const auto sum_plane = [&](int d, C(&sums)[2][2][8]) {
      Octet<T> octets[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const int i = at.h - t / 2, j = at.w - t % 2;
        octets[t] = {};
        if (d >= 0 && d < p.d.out && i >= 0 && i < p.h.out && j >= 0 && j < p.w.out)
          octets[t] = *reinterpret_cast<const Octet<T>*>(gy + (((at.n * p.d.out + d) * p.h.out + i) * p.w.out + j) * channels +
                                                         at.pack * 8);
      }
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const C own = C{} + load(octets[0].of[c]), left = load(octets[1].of[c]), up = load(octets[2].of[c]);
        sums[1][1][c] = own;
        sums[1][0][c] = own + left;
        sums[0][1][c] = own + up;
        sums[0][0][c] = own + left + up + load(octets[3].of[c]);
      }
    };
    C before[2][2][8], sums[2][2][8];
    sum_plane(at.begin - 1, before);
    for (int number = at.begin; number < at.end; ++number) {
      sum_plane(number, sums);
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        const int d = 2 * number - p.d.low + t / 4, h = 2 * at.h - p.h.low + t / 2 % 2, w = 2 * at.w - p.w.low + t % 2;
        if (d < 0 || d >= p.d.in || h < 0 || h >= p.h.in || w < 0 || w >= p.w.in) continue;
        const std::int64_t pixel = ((at.n * p.d.in + d) * p.h.in + h) * p.w.in + w;
        C values[8];
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          values[c] = sums[t / 2 % 2][t % 2][c];
          if (t < 4) values[c] += before[t / 2 % 2][t % 2][c];
          values[c] *= scale;
        }
        select(f, signs[pixel * m.packs.divisor() + at.pack], values);
        store_octet<true>(values, 8, gx + pixel * channels + at.pack * 8);
      }
#pragma unroll
      for (int t = 0; t < 4; ++t)
#pragma unroll
        for (int c = 0; c < 8; ++c) before[t / 2][t % 2][c] = sums[t / 2][t % 2][c];
    }
  });
}

// ---- on the host

// True if each input is among the first three of a window, and channels come in whole groups of eight.
inline bool marches(const PoolProblem& p, PoolKernels wanted, const void* a, const void* b) {
  bool fits = wanted != PoolKernels::any_form && p.channels % 8 == 0 && aligned_to(a, 16) && aligned_to(b, 16);
  for (std::size_t i = 0; i < 3; ++i)
    fits = fits && p.kernel[i] == 3 && p.stride[i] == 2 && p.dilation[i] == 1 && (p.pad_low[i] == 0 || p.pad_low[i] == 1) &&
           p.in[i] <= 2 * p.out[i] + 1 - p.pad_low[i];
  return fits && p.batch * volume(p.out) * volume(p.in) > 0;
}

// Parts of the depth are as long as possible while the GPU has enough threads.
inline March march_of(const PoolProblem& p, const Extent3& begin, const Extent3& count, PoolKernels wanted) {
  const std::int64_t packs = p.channels / 8, lines = p.batch * count[1] * count[2] * packs;
  std::int64_t length = wanted == PoolKernels::marching ? 3 : 16;
  while (wanted == PoolKernels::fitting && length > 1 && lines * ((count[0] + length - 1) / length) < 262144) length /= 2;
  const std::int64_t parts = (count[0] + length - 1) / length;
  return {.rows = p.batch * parts * count[1],
          .height = FastDivide(count[1]),
          .parts = FastDivide(parts),
          .begin_d = static_cast<int>(begin[0]),
          .begin_h = static_cast<int>(begin[1]),
          .begin_w = static_cast<int>(begin[2]),
          .end_d = static_cast<int>(begin[0] + count[0]),
          .length = static_cast<int>(length),
          .packs = FastDivideInt(packs),
          .items = static_cast<unsigned>(count[2] * packs)};
}

template <class T>
void leaky_avg_pool_march(const PoolProblem& p, scalar::Fused fused, const T* x, T* y, std::uint8_t* signs, void* stream,
                          PoolKernels wanted) {
  const auto march = march_of(p, {}, p.out, wanted);
  const auto grid = row_grid(march.rows, march.items);
  launch("leaky_avg_pool", leaky_forward_march<T>, grid.grid, grid.block, stream, windows_of(p, p.out, 8), march,
         static_cast<int>(p.channels), scalar::LeakyRelu{fused}, mean_scale<T>(p), x, y, signs);
}

template <class T>
void leaky_avg_pool_adjoint_march(const PoolProblem& p, scalar::Fused fused, const T* gy, const std::uint8_t* signs, T* gx,
                                  void* stream, PoolKernels wanted) {
  Extent3 begin{}, count{};
  for (std::size_t a = 0; a < 3; ++a) begin[a] = p.pad_low[a] / 2, count[a] = (p.pad_low[a] + p.in[a] - 1) / 2 - begin[a] + 1;
  const auto march = march_of(p, begin, count, wanted);
  const auto grid = row_grid(march.rows, march.items);
  launch("leaky_avg_pool_adjoint", leaky_adjoint_march<T>, grid.grid, grid.block, stream, windows_of(p, p.in, 8), march,
         static_cast<int>(p.channels), scalar::LeakyReluAdjoint{fused}, mean_scale<T>(p), gy, signs, gx);
}

}  // namespace
}  // namespace mpigrad::cuda
