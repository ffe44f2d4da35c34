// Convolutions of images with few channels, in float32: products and sums are exact float32, without tensor cores. cuDNN's
// kernels need eight channels or more. Boxes as in few_channels_kernels.cu; channels are stored one after the other in shared
// memory, so that a thread reads four numbers along the width at a time.

#include <algorithm>

#include "ops/conv/conv_boxes.cuh"
#include "ops/conv/few_channels.h"

namespace mpigrad::cuda {
namespace {

using Four = Pack<float, 4>;
constexpr int out_channels = 16, quads = out_channels / 4;

// A box of inputs in shared memory: rows are aligned to 16 bytes, and rows and channels that are read together are in different
// banks.
template <class Box, int channels>
struct Image {
  static constexpr int row = (Box::image_w + 3) / 4 * 4, plane = Box::image_h * row, channel = Box::image_d * plane + 12;
  static_assert(row / 4 % 2 == 1 && channel % 4 == 0);
  static constexpr int words = channels * channel;
  __device__ static constexpr int place(int i) {
    const int line = i / Box::image_w;
    return line * row + i - line * Box::image_w;
  }
};

// ---- forward: a thread computes sixteen outputs along the width, for four output channels

using ForwardBox = BoxForm<4, 8, 32>;
constexpr int forward_threads = ForwardBox::outputs / 16 * quads;

template <int channels>
__global__ void __launch_bounds__(forward_threads, 2)
    forward_kernel(Boxes b, std::int64_t width, float factor, const float* x, const float* weights, const float* bias, float* y) {
  using Box = ForwardBox;
  using In = Image<Box, channels>;
  __shared__ Four of_image[In::words / 4], of_weights[taps * channels * quads];
  float* image = of_image[0].of;
  const int thread = static_cast<int>(threadIdx.x), quad = thread % quads, group = thread / quads;
  const int first = static_cast<int>(blockIdx.y) * out_channels;
  const Corner at = corner_of<Box>(b, blockIdx.x);
  for (int i = thread; i < Box::image; i += forward_threads) {
    const auto pixel = input_at<Box>(b, at, i);
#pragma unroll
    for (int c = 0; c < channels; ++c) image[c * In::channel + In::place(i)] = pixel < 0 ? 0.0F : x[pixel * channels + c];
  }
  for (int i = thread; i < taps * channels * out_channels; i += forward_threads)
    of_weights[i / 4].of[i % 4] =
        weights[static_cast<std::int64_t>(first + i % out_channels) * taps * channels + i / out_channels];
  __syncthreads();

  const int w = group % 2 * 16, h = group / 2 % Box::h, d = group / 2 / Box::h;
  float sums[16][4] = {};
#pragma unroll 1
  for (int row = 0; row < 9; ++row) {
#pragma unroll
    for (int c = 0; c < channels; ++c) {
      const auto* from =
          reinterpret_cast<const Four*>(image + c * In::channel + (d + row / 3) * In::plane + (h + row % 3) * In::row + w);
      Four in[5];
#pragma unroll
      for (int k = 0; k < 5; ++k) in[k] = from[k];
#pragma unroll
      for (int tap = 0; tap < 3; ++tap) {
        const Four by = of_weights[((row * 3 + tap) * channels + c) * quads + quad];
#pragma unroll
        for (int i = 0; i < 16; ++i)
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[i][k] += in[(i + tap) / 4].of[(i + tap) % 4] * by.of[k];
      }
    }
  }
  float add[4] = {};
  if (bias)
#pragma unroll
    for (int k = 0; k < 4; ++k) add[k] = bias[first + quad * 4 + k];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const auto pixel = output_at(b, at.n, at.d + d, at.h + h, at.w + w + i);
    if (pixel < 0) continue;
    Four out;
#pragma unroll
    for (int k = 0; k < 4; ++k) out.of[k] = activated(sums[i][k] + add[k], factor);
    *reinterpret_cast<Four*>(y + pixel * width + first + quad * 4) = out;
  }
}

// ---- weight gradients: a thread computes three taps along the width of one channel, for four output channels; a block up to
// four channels of the image

using WeightBox = BoxForm<2, 4, 32>;
constexpr int weight_threads = 9 * warp;

template <int channels>
__global__ void __launch_bounds__(weight_threads, 3)
    weight_kernel(Boxes b, std::int64_t in_width, std::int64_t width, const float* x, const float* gy, float* parts) {
  using Box = WeightBox;
  using In = Image<Box, channels>;
  // Threads with the same output channels and taps process different rows of the box; their sums are added up at the end.
  constexpr int of_set = 9 * channels * quads, sets = weight_threads / of_set, numbers = of_set * 12;
  constexpr int pixels = (Box::image + weight_threads - 1) / weight_threads,
                cotangents = (Box::outputs * quads + weight_threads - 1) / weight_threads;
  __shared__ Four of_image[In::words / 4], of_outputs[Box::outputs * quads];
  static_assert(sizeof(of_outputs) >= numbers * sizeof(float));
  float* image = of_image[0].of;
  const int thread = static_cast<int>(threadIdx.x), set = thread / of_set, own = thread % of_set;
  const int quad = own % quads, c = own / quads % channels, row_of_taps = own / quads / channels;
  const int first = static_cast<int>(blockIdx.y) * out_channels, first_in = static_cast<int>(blockIdx.z) * channels;

  // The next box is loaded while this one is computed.
  float coming[pixels][channels];
  Four coming_cotangents[cotangents];
  const auto fetch = [&](std::int64_t number) {
    const Corner at = corner_of<Box>(b, number);
#pragma unroll
    for (int k = 0; k < pixels; ++k) {
      const int i = thread + k * weight_threads;
      const auto pixel = i < Box::image ? input_at<Box>(b, at, i) : -1;
#pragma unroll
      for (int of = 0; of < channels; ++of) coming[k][of] = pixel < 0 ? 0.0F : x[pixel * in_width + first_in + of];
    }
#pragma unroll
    for (int k = 0; k < cotangents; ++k) {
      const int i = thread + k * weight_threads, output = i / quads, row = output / Box::w;
      const auto pixel =
          output < Box::outputs ? output_at(b, at.n, at.d + row / Box::h, at.h + row % Box::h, at.w + output % Box::w) : -1;
      coming_cotangents[k] = pixel < 0 ? Four{} : *reinterpret_cast<const Four*>(gy + pixel * width + first + i % quads * 4);
    }
  };

  float sums[3][4] = {};
  if (static_cast<std::int64_t>(blockIdx.x) < b.count) fetch(blockIdx.x);
  for (std::int64_t number = blockIdx.x; number < b.count; number += gridDim.x) {
#pragma unroll
    for (int k = 0; k < pixels; ++k) {
      const int i = thread + k * weight_threads;
      if (i >= Box::image) continue;
#pragma unroll
      for (int of = 0; of < channels; ++of) image[of * In::channel + In::place(i)] = coming[k][of];
    }
#pragma unroll
    for (int k = 0; k < cotangents; ++k) {
      const int i = thread + k * weight_threads;
      if (i < Box::outputs * quads) of_outputs[i] = coming_cotangents[k];
    }
    __syncthreads();
    if (number + gridDim.x < b.count) fetch(number + gridDim.x);
    if (set < sets)
#pragma unroll 1
      for (int row = set; row < Box::rows; row += sets) {
        const auto* from = reinterpret_cast<const Four*>(image + c * In::channel + (row / Box::h + row_of_taps / 3) * In::plane +
                                                         (row % Box::h + row_of_taps % 3) * In::row);
        const Four* of_row = of_outputs + row * Box::w * quads + quad;
        Four in = from[0];
#pragma unroll
        for (int w = 0; w < Box::w; w += 4) {
          const Four next = from[w / 4 + 1];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const Four by = of_row[(w + i) * quads];
#pragma unroll
            for (int tap = 0; tap < 3; ++tap) {
              const float value = i + tap < 4 ? in.of[(i + tap) % 4] : next.of[(i + tap) % 4];
#pragma unroll
              for (int k = 0; k < 4; ++k) sums[tap][k] += value * by.of[k];
            }
          }
          in = next;
        }
      }
    __syncthreads();
  }

  // The sets are added one after the other, in the order [K, taps, C].
  float* all = of_outputs[0].of;
  for (int of = 0; of < sets; ++of) {
    if (set == of)
#pragma unroll
      for (int tap = 0; tap < 3; ++tap)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float& sum = all[((quad * 4 + k) * taps + row_of_taps * 3 + tap) * channels + c];
          sum = of == 0 ? sums[tap][k] : sum + sums[tap][k];
        }
    __syncthreads();
  }
  float* part = parts + (static_cast<std::int64_t>(blockIdx.x) * width + first) * taps * in_width + first_in;
  for (int i = thread; i < numbers; i += weight_threads) part[i / channels * in_width + i % channels] = all[i];
}

struct WeightGrid {
  std::int64_t parts, out, in;
};
// For an image with many channels fewer, longer parts suffice to keep a GPU busy.
WeightGrid weight_grid(const ConvProblem& p, std::int64_t most) {
  const auto out = p.out_channels / out_channels, in = p.in_channels <= 4 ? 1 : p.in_channels / 4;
  const auto enough = std::max<std::int64_t>(16, 2 * weight_parts / (out * in));
  return {parts_of<WeightBox>(p, std::min(most, enough)), out, in};
}

}  // namespace

template <>
void few_channels_forward(const ConvProblem& p, const float* x, const float* w, const float* bias, scalar::Fused fused, float* y,
                          Stream stream) {
  const auto boxes = boxes_of<ForwardBox>(p);
  const dim3 grid(static_cast<unsigned>(boxes.count), static_cast<unsigned>(p.out_channels / out_channels));
  with_few_channels(p, [&](auto channels) {
    launch("few_channels_forward", forward_kernel<decltype(channels)::value>, grid, forward_threads, stream, boxes,
           p.out_channels, static_cast<float>(fused.factor), x, w, bias, y);
  });
}

std::int64_t weights_float32_scratch(const ConvProblem& p) {
  return weight_grid(p, weight_parts).parts * p.out_channels * taps * p.in_channels * static_cast<std::int64_t>(sizeof(float));
}

void weights_float32(const ConvProblem& p, const float* x, const float* gy, float* scratch, float* gw, Stream stream,
                     std::int64_t most_parts) {
  const auto of = weight_grid(p, most_parts);
  const auto weights = p.out_channels * taps * p.in_channels;
  const dim3 grid(static_cast<unsigned>(of.parts), static_cast<unsigned>(of.out), static_cast<unsigned>(of.in));
  with_few_channels(p, [&](auto channels) {
    launch("weights_float32", weight_kernel<decltype(channels)::value>, grid, weight_threads, stream, boxes_of<WeightBox>(p),
           p.in_channels, p.out_channels, x, gy, scratch);
  });
  launch("weights_float32", join_parts_kernel<float>, blocks_for(weights * warp), block_threads, stream, weights, of.parts,
         scratch, gw);
}

}  // namespace mpigrad::cuda
