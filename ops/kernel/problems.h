#pragma once
// Problem descriptions of window and product kernels, in numbers, and the positions of the taps of a window; shared by the
// kernels of all devices. Activations are [N, D, H, W, C], convolution weights [K, kd, kh, kw, C/groups], all row-major. Compiles
// as CUDA.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/elementwise/activation_functions.h"
#include "ops/extents.h"

namespace mpigrad::kernel {

// Cross-correlation  y[n,o,k] = sum_{t,c} x[n, o*stride + t*dilation - pad_low, c] w[k,t,c];  x is zero outside [0, in).
// `out` is given: positions past the right edge are zeros as well, so the right padding is implied (and may be negative).
struct ConvProblem {
  std::int64_t batch = 0;
  Extent3 in{}, out{}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad_low{0, 0, 0};
  std::int64_t in_channels = 0, out_channels = 0, groups = 1;
  bool operator==(const ConvProblem&) const = default;
};

// Bias and fused activation of a convolution or a matmul (none; ReLU, +0 also for -infinity; LeakyReLU). NaN stays NaN, as in
// ops/elementwise/elementwise.h: oneDNN's ReLU, which gives 0 for NaN, and cuBLASLt's, which guarantees nothing, are replaced by
// loops of our own; oneDNN's LeakyReLU, and cuDNN's activations set to propagate NaN, are used and tested
// (tests/framework/nan_test.cpp). No library's backward pass of an activation is used.
struct Epilogue {
  const void* bias = nullptr;  // [K] of the same type, or null
  scalar::Fused fused{};
  bool empty() const { return bias == nullptr && fused.is_none(); }
};

struct PoolProblem {
  std::int64_t batch = 0;
  Extent3 in{}, out{}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad_low{0, 0, 0};
  std::int64_t channels = 0;
  bool operator==(const PoolProblem&) const = default;
};

// c[b] = op(a[b]) op(b[b]), c: [batch, m, n]; a is [m, k] or, transposed, [k, m]; b is [k, n] or [n, k]. Strides between
// batches in elements; 0 repeats the operand. k == 0 gives zeros.
struct MatmulProblem {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t stride_a = 0, stride_b = 0;
  bool operator==(const MatmulProblem&) const = default;
};

constexpr std::int64_t volume(const Extent3& e) { return e[0] * e[1] * e[2]; }

constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

// The number of inputs along axis a from the first tap of a window to its last.
template <class Problem>
constexpr std::int64_t window_extent(const Problem& p, std::size_t a) {
  return (p.kernel[a] - 1) * p.dilation[a] + 1;
}
// The padding after the input that `out` implies; negative where the last window ends before the last input.
template <class Problem>
constexpr std::int64_t pad_high(const Problem& p, std::size_t a) {
  return (p.out[a] - 1) * p.stride[a] + window_extent(p, a) - p.in[a] - p.pad_low[a];
}

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

// Assigns every input along axis a to one output, most likely one whose window contains it: that output does the work that is
// done once per input.
template <class Problem>
constexpr Range owned_inputs(const Problem& p, std::size_t a, std::int64_t o) {
  const auto first = [&](std::int64_t at) {
    if (at == 0 || at == p.out[a]) return at == 0 ? std::int64_t{0} : p.in[a];
    return std::clamp<std::int64_t>(at * p.stride[a] - p.pad_low[a], 0, p.in[a]);
  };
  return {first(o), first(o + 1)};
}
// Bytes that hold one bit per channel.
constexpr std::int64_t octets(std::int64_t channels) { return (channels + 7) / 8; }

}  // namespace mpigrad::kernel

namespace mpigrad::cpu {
using namespace kernel;
}
