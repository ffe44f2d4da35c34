#pragma once
// The arithmetic of Winograd's F(2x2x2, 3x3x3) and F(2x2, 3x3) on blocks that stay in the caches: transforms of one tile, and
// small matrix products, for the processor's vector units. Included by winograd.cpp, which explains the algorithm, and by its
// test.

#include <array>
#include <cstdint>
#include <vector>

#include "ops/elementwise/activation_functions.h"

namespace mpigrad::cpu::winograd {

inline constexpr std::int64_t lanes = 16;  // channels are processed in groups of this many

// Positions of the cells of a tile: cell (d, h, w) of channel c is at `first` + d * step[0] + h * step[1] + w * step[2] + c.
// Cells outside [begin, end) of an axis, counted from the tile's first cell, are zero (read) or not written.
struct Cells {
  std::array<std::int64_t, 3> step{}, begin{}, end{};
};

// Transforms of tiles in three dimensions, as described here, or of flat tiles in height and width with d = 0, which lack the
// first factor of each product and have 16 positions instead of 64. Elements of a tile's transform are `stride` apart from
// position to position, channels adjacent.
struct Transforms {
  // v = (B^T x B^T x B^T) of 4 x 4 x 4 cells
  void (*input)(const Cells&, std::int64_t channels, const float* x, float* v, std::int64_t stride);
  // v = (A x A x A) of 2 x 2 x 2 cells, the transpose of `output`
  void (*gradient)(const Cells&, std::int64_t channels, const float* g, float* v, std::int64_t stride);
  // 2 x 2 x 2 cells y = fused((A^T x A^T x A^T) of m + bias); no bias if null
  void (*output)(const Cells&, std::int64_t channels, const float* m, std::int64_t stride, const float* bias,
                 scalar::FusedOf<float> fused, float* y);
  // u = (G x G x G) of 3 x 3 x 3 taps, `between` apart, and its transpose: taps = (G^T x G^T x G^T) of s
  void (*weight)(std::int64_t channels, const float* taps, std::int64_t between, float* u, std::int64_t stride);
  void (*weight_gradient)(std::int64_t channels, const float* s, std::int64_t stride, float* taps, std::int64_t between);
};
struct Kernels {
  Transforms volume, flat;
  // c[m, n] = (c if accumulate) + sum over k of a[i * row + l * column] b[l * ldb + j]; n is a multiple of `lanes`
  void (*product)(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t row, std::int64_t column,
                  const float* b, std::int64_t ldb, bool accumulate, float* c, std::int64_t ldc);
};

// One set per vector width of this processor, widest first; the last one uses the compiler's flags.
const std::vector<Kernels>& supported();
// The widest set, and whether it is wide enough for the products to be faster than a library's convolution.
inline const Kernels& kernels() { return supported().front(); }
inline bool fast() { return supported().size() > 1; }

}  // namespace mpigrad::cpu::winograd
