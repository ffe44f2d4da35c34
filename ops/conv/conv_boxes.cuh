#pragma once
// Convolutions with three taps along each axis, without stride or dilation; each block computes a box of outputs and has the
// inputs around it in shared memory (few_channels_kernels.cu, few_channels_float32_kernels.cu, sixteen_channels_kernels.cu).

#include <type_traits>

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/tensor/strided.h"
#include "ops/conv/mma.cuh"
#include "ops/kernel/fold.cuh"
#include "ops/kernel/problems.h"

namespace mpigrad::cuda {

using namespace kernel;

constexpr int taps = 27;

struct Boxes {
  int in[3], out[3], low[3];
  FastDivide d, h, w;  // number of boxes along each axis
  std::int64_t count;
};

// Box with D x H x W outputs.
template <int D, int H, int W>
struct BoxForm {
  static constexpr int d = D, h = H, w = W, outputs = D * H * W, rows = D * H;
  // The inputs that these outputs read; behind(): offset of a tap's input from the first input of a window.
  static constexpr int image_d = D + 2, image_h = H + 2, image_w = W + 2, image = image_d * image_h * image_w;
  __device__ static constexpr int behind(int tap) { return (tap / 9 * image_h + tap / 3 % 3) * image_w + tap % 3; }
};

// Origin of a box: sample and first output.
struct Corner {
  std::int64_t n;
  int d, h, w;
};
template <class Box>
__device__ inline Corner corner_of(const Boxes& b, std::int64_t number) {
  const std::int64_t line = b.w.quotient(number), plane = b.h.quotient(line), n = b.d.quotient(plane);
  return {n, static_cast<int>(plane - n * b.d.divisor()) * Box::d, static_cast<int>(line - plane * b.h.divisor()) * Box::h,
          static_cast<int>(number - line * b.w.divisor()) * Box::w};
}

// The image pixel of input number i around a box, or -1 outside the image.
template <class Box>
__device__ inline std::int64_t input_at(const Boxes& b, const Corner& at, int i) {
  const int line = i / Box::image_w, plane = line / Box::image_h;
  const int d = at.d - b.low[0] + plane, h = at.h - b.low[1] + line - plane * Box::image_h;
  const int w = at.w - b.low[2] + i - line * Box::image_w;
  if (d < 0 || d >= b.in[0] || h < 0 || h >= b.in[1] || w < 0 || w >= b.in[2]) return -1;
  return ((at.n * b.in[0] + d) * b.in[1] + h) * b.in[2] + w;
}
// The pixel of an output, or -1 outside the outputs.
__device__ inline std::int64_t output_at(const Boxes& b, std::int64_t n, int d, int h, int w) {
  if (d >= b.out[0] || h >= b.out[1] || w >= b.out[2]) return -1;
  return ((n * b.out[0] + d) * b.out[1] + h) * b.out[2] + w;
}

// The activation of bias_activation().
__device__ inline float activated(float value, float factor) {
  return value < 0 && factor != 1 ? factor == 0 ? 0.0F : factor * value : value;
}

// gw = the sum of `parts` partial sums: one warp per weight.
template <class T>
__global__ void join_parts_kernel(std::int64_t weights, std::int64_t parts, const float* part, T* gw) {
  const std::int64_t lane = static_cast<std::int64_t>(threadIdx.x) % warp;
  for (std::int64_t i = first_index() / warp; i < weights; i += grid_stride() / warp) {
    double sum = 0;
    for (std::int64_t p = lane; p < parts; p += warp) sum += static_cast<double>(part[p * weights + i]);
    sum = fold_warp(sum, AddFold{});
    if (lane == 0) gw[i] = store<T>(static_cast<float>(sum));
  }
}

template <class Box>
Boxes boxes_of(const ConvProblem& p) {
  const auto along = [&](std::size_t a, std::int64_t size) { return (p.out[a] + size - 1) / size; };
  const auto d = along(0, Box::d), h = along(1, Box::h), w = along(2, Box::w);
  Boxes b{
      .in = {}, .out = {}, .low = {}, .d = FastDivide(d), .h = FastDivide(h), .w = FastDivide(w), .count = p.batch * d * h * w};
  for (std::size_t a = 0; a < 3; ++a) {
    b.in[a] = static_cast<int>(p.in[a]);
    b.out[a] = static_cast<int>(p.out[a]);
    b.low[a] = static_cast<int>(p.pad_low[a]);
  }
  return b;
}
// Number of blocks for a weight gradient; each block processes several boxes.
template <class Box>
std::int64_t parts_of(const ConvProblem& p, std::int64_t most) {
  const auto count = boxes_of<Box>(p).count;
  return count < most ? count : most;
}

// Calls f(channels) with the number of the image's channels, one to four, as a compile-time constant.
template <class F>
void with_few_channels(const ConvProblem& p, const F& f) {
  switch (p.in_channels) {
    case 1: return f(std::integral_constant<int, 1>{});
    case 2: return f(std::integral_constant<int, 2>{});
    case 3: return f(std::integral_constant<int, 3>{});
    default: return f(std::integral_constant<int, 4>{});
  }
}

}  // namespace mpigrad::cuda
