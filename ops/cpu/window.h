#pragma once
// Which taps of a window fall where: the index arithmetic shared by convolutions and pools.

#include <algorithm>
#include <cstdint>

#include "ops/cpu/kernels.h"

namespace mpigrad::cpu {

constexpr std::int64_t volume(const Extent3& e) { return e[0] * e[1] * e[2]; }

constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

// Half-open range of indices.
struct Range {
  std::int64_t begin = 0, end = 0;
};

// The j in [0, count) with start + j * step in [0, extent); step > 0.
constexpr Range inside(std::int64_t start, std::int64_t step, std::int64_t count, std::int64_t extent) {
  const std::int64_t begin = std::clamp<std::int64_t>(ceil_div(-start, step), 0, count);
  const std::int64_t end = std::clamp<std::int64_t>(floor_div(extent - 1 - start, step) + 1, begin, count);
  return {begin, end};
}

// The output whose tap t reads input i along axis a, or -1: the o with o * stride + t * dilation - pad_low == i.
template <class Problem>
constexpr std::int64_t output_of(const Problem& p, std::size_t a, std::int64_t i, std::int64_t t) {
  const std::int64_t position = i + p.pad_low[a] - t * p.dilation[a];
  if (position < 0 || position % p.stride[a] != 0) return -1;
  const std::int64_t o = position / p.stride[a];
  return o < p.out[a] ? o : -1;
}

}  // namespace mpigrad::cpu
