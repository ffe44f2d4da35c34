// Convolutions of images with few channels, in 16 bits with tensor cores: the first layer of a network on volumes. cuDNN's
// kernels need eight channels and more, and take twenty times as long as the memory traffic alone; these take four times as long.
//
// A block computes a box of outputs for sixteen output channels; the inputs around it are in shared memory, with four channels
// each. The sum over taps and channels is a product of matrices with 27 x 4 columns, padded to 28 x 4 with zeros that do not
// multiply numbers of the image: NaN in the image only affects the outputs that read it. In a weight gradient it affects all taps
// of its channel if a box extends over the edge, because zeros replace the missing outputs there.

#include "ops/conv/conv_boxes.cuh"
#include "ops/conv/few_channels.h"

namespace mpigrad::cuda {
namespace {

constexpr int most_channels = 4, out_channels = 16;
using Box = BoxForm<4, 8, 16>;
constexpr int threads = 256, warps = threads / warp, rows_of_warp = Box::rows / warps;
constexpr int pixels_of_thread = (Box::image + threads - 1) / threads;

// The channels of a pixel, followed by zeros.
struct alignas(8) Pixel {
  unsigned pair[2];
};
template <int channels, class T>
__device__ inline Pixel pixel_of(const T* x) {
  if constexpr (channels == 4) return *reinterpret_cast<const Pixel*>(x);
  T of[4] = {};
#pragma unroll
  for (int c = 0; c < channels; ++c) of[c] = x[c];
  return {{pair_of(of[0], of[1]), pair_of(of[2], of[3])}};
}

// Zeros outside the image.
template <int channels, class T>
__device__ inline Pixel input_of(const Boxes& b, const Corner& at, int i, const T* x) {
  const auto pixel = input_at<Box>(b, at, i);
  return pixel < 0 ? Pixel{} : pixel_of<channels>(x + pixel * channels);
}

// Rows of the matrix are sixteen outputs along the width, columns four taps of four channels; lane 4 g + t has two channels of
// two taps. The sixteen sums of an output are distributed so that a lane has four that are neighbours in memory.
template <int channels, class T>
__global__ void __launch_bounds__(threads, 3)
    forward_kernel(Boxes b, std::int64_t width, float factor, const T* x, const T* weights, const T* bias, T* y) {
  __shared__ Pixel inputs[Box::image];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp, g = lane / 4, t = lane % 4;
  const int first = static_cast<int>(blockIdx.y) * out_channels;
  const Corner at = corner_of<Box>(b, blockIdx.x);
  for (int i = thread; i < Box::image; i += threads) inputs[i] = input_of<channels>(b, at, i, x);

  constexpr int steps = (taps + 3) / 4;
  unsigned of_weights[steps][2][2];
  int offset[steps][2];
#pragma unroll
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tap = 4 * s + 2 * half + t / 2, c = t % 2 * 2;
      offset[s][half] = tap < taps ? Box::behind(tap) : 0;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        T low{}, high{};
        if (tap < taps) {
          const T* of_tap = weights + (static_cast<std::int64_t>(first + g / 2 * 4 + j * 2 + g % 2) * taps + tap) * channels;
          if (c < channels) low = of_tap[c];
          if (c + 1 < channels) high = of_tap[c + 1];
        }
        of_weights[s][j][half] = pair_of(low, high);
      }
    }
  float add[4] = {};
  if (bias)
#pragma unroll
    for (int c = 0; c < 4; ++c) add[c] = load(bias[first + t * 4 + c]);
  __syncthreads();

#pragma unroll
  for (int r = 0; r < rows_of_warp; ++r) {
    const int row = thread / warp * rows_of_warp + r, d = row / Box::h, h = row % Box::h;
    const int begin = (d * Box::image_h + h) * Box::image_w + g;
    float sums[2][4] = {};
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      const auto pair = [&](int place) { return inputs[place].pair[t % 2]; };
      // The last step has no fourth tap.
      const bool any = 4 * s + 2 + t / 2 < taps;
      const unsigned second = pair(begin + offset[s][1]), third = pair(begin + 8 + offset[s][1]);
      const unsigned a[4] = {pair(begin + offset[s][0]), pair(begin + 8 + offset[s][0]), any ? second : 0, any ? third : 0};
#pragma unroll
      for (int j = 0; j < 2; ++j) multiply_add<T>(sums[j], a, of_weights[s][j]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto pixel = output_at(b, at.n, at.d + d, at.h + h, at.w + g + 8 * half);
      if (pixel < 0) continue;
      Pack<T, 4> out;
#pragma unroll
      for (int c = 0; c < 4; ++c) out.of[c] = store<T>(activated(sums[c / 2][2 * half + c % 2] + add[c], factor));
      *reinterpret_cast<Pack<T, 4>*>(y + pixel * width + first + t * 4) = out;
    }
  }
}

// gw = sum over outputs of gy x: rows are sixteen output channels, columns two taps of four channels; the sum is over sixteen
// outputs along the width. Registers hold two neighbours of that sum, so that both operands are stored with the width innermost.
// Inputs are stored twice, the second time shifted by one to the left; otherwise those of the middle taps would straddle two
// words.
template <int channels, class T>
__global__ void __launch_bounds__(threads, 2) weight_kernel(Boxes b, std::int64_t width, const T* x, const T* gy, float* parts) {
  constexpr int pairs = (taps + 1) / 2, plane = Box::image / 2,
                outputs = Box::outputs / 2 + 4;  // words; few bank conflicts
  static_assert(Box::image_w % 2 == 0 && plane % 32 == 28 && outputs % 32 == 4);
  __shared__ unsigned inputs[2][most_channels][plane], cotangents[out_channels][outputs];
  __shared__ float sums[out_channels][pairs * 8];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp, g = lane / 4, t = lane % 4;
  const int first = static_cast<int>(blockIdx.y) * out_channels;

  // The inputs that the lane reads: channel g % 4 of tap 2 j + g / 4, beginning with output 2 t of a row.
  int offset[pairs];
#pragma unroll
  for (int j = 0; j < pairs; ++j) {
    const int tap = 2 * j + g / 4, w = tap % 3;
    offset[j] = tap < taps ? (w == 1 ? most_channels * plane : 0) + g % 4 * plane + (Box::behind(tap) - w) / 2 + w / 2 + t : 0;
  }
  const unsigned* all_inputs = &inputs[0][0][0];

  // The next box is loaded while this one is computed.
  Pixel coming[pixels_of_thread];
  Pack<T, 8> coming_cotangents[2][2];
  const auto fetch = [&](std::int64_t number) {
    const Corner at = corner_of<Box>(b, number);
#pragma unroll
    for (int k = 0; k < pixels_of_thread; ++k) {
      const int i = thread + k * threads;
      coming[k] = i < Box::image ? input_of<channels>(b, at, i, x) : Pixel{};
    }
    const int row = thread / (Box::w / 2);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const auto pixel = output_at(b, at.n, at.d + row / Box::h, at.h + row % Box::h, at.w + thread % (Box::w / 2) * 2 + k);
      const auto* from = reinterpret_cast<const Pack<T, 8>*>(gy + pixel * width + first);
#pragma unroll
      for (int half = 0; half < 2; ++half) coming_cotangents[k][half] = pixel < 0 ? Pack<T, 8>{} : from[half];
    }
  };

  float sum[pairs][4] = {};
  if (static_cast<std::int64_t>(blockIdx.x) < b.count) fetch(blockIdx.x);
  for (std::int64_t number = blockIdx.x; number < b.count; number += gridDim.x) {
    auto* numbers = reinterpret_cast<std::uint16_t*>(&inputs[0][0][0]);
#pragma unroll
    for (int k = 0; k < pixels_of_thread; ++k) {
      const int i = thread + k * threads;
      if (i >= Box::image) continue;
#pragma unroll
      for (int c = 0; c < most_channels; ++c) {
        const auto value = static_cast<std::uint16_t>(coming[k].pair[c / 2] >> (c % 2 * 16));
        numbers[c * Box::image + i] = value;
        if (i > 0) numbers[(most_channels + c) * Box::image + i - 1] = value;
      }
    }
#pragma unroll
    for (int c = 0; c < out_channels; ++c)
      cotangents[c][thread] = pair_of(coming_cotangents[0][c / 8].of[c % 8], coming_cotangents[1][c / 8].of[c % 8]);
    __syncthreads();
    if (number + gridDim.x < b.count) fetch(number + gridDim.x);
    for (int r = 0; r < rows_of_warp; ++r) {
      const int row = thread / warp * rows_of_warp + r, word = row * (Box::w / 2) + t;
      const int begin = (row / Box::h * Box::image_h + row % Box::h) * Box::image_w / 2;
      const unsigned a[4] = {cotangents[g][word], cotangents[g + 8][word], cotangents[g][word + 4], cotangents[g + 8][word + 4]};
#pragma unroll
      for (int j = 0; j < pairs; ++j) {
        const bool any = 2 * j + g / 4 < taps;
        const unsigned one = all_inputs[begin + offset[j]], other = all_inputs[begin + offset[j] + 4];
        const unsigned of_inputs[2] = {any ? one : 0, any ? other : 0};
        multiply_add<T>(sum[j], a, of_inputs);
      }
    }
    __syncthreads();
  }

  // The warps add one after the other.
  for (int of = 0; of < warps; ++of) {
    if (thread / warp == of)
#pragma unroll
      for (int j = 0; j < pairs; ++j)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float& all = sums[g + k / 2 * 8][j * 8 + 2 * t + k % 2];
          all = of == 0 ? sum[j][k] : all + sum[j][k];
        }
    __syncthreads();
  }
  float* part = parts + (static_cast<std::int64_t>(blockIdx.x) * width + first) * taps * channels;
  for (int i = thread; i < out_channels * taps * channels; i += threads) {
    const int k = i / (taps * channels), tap = i / channels % taps, c = i % channels;
    part[i] = sums[k][tap * most_channels + c];
  }
}

}  // namespace

bool few_channels_run_here() {
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  return major >= 8;
}

std::int64_t few_channels_scratch(const ConvProblem& p) {
  return parts_of<Box>(p, weight_parts) * p.out_channels * taps * p.in_channels * static_cast<std::int64_t>(sizeof(float));
}

template <class T>
void few_channels_forward(const ConvProblem& p, const T* x, const T* w, const T* bias, scalar::Fused fused, T* y, Stream stream) {
  const auto boxes = boxes_of<Box>(p);
  with_few_channels(p, [&](auto channels) {
    const dim3 grid(static_cast<unsigned>(boxes.count), static_cast<unsigned>(p.out_channels / out_channels));
    launch("few_channels_forward", forward_kernel<decltype(channels)::value, T>, grid, threads, stream, boxes, p.out_channels,
           static_cast<float>(fused.factor), x, w, bias, y);
  });
}

template <class T>
void few_channels_weight(const ConvProblem& p, const T* x, const T* gy, float* scratch, T* gw, Stream stream,
                         std::int64_t most_parts) {
  const auto parts = parts_of<Box>(p, most_parts), weights = p.out_channels * taps * p.in_channels;
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(p.out_channels / out_channels));
  with_few_channels(p, [&](auto channels) {
    launch("few_channels_weight", weight_kernel<decltype(channels)::value, T>, grid, threads, stream, boxes_of<Box>(p),
           p.out_channels, x, gy, scratch);
  });
  launch("few_channels_weight", join_parts_kernel<T>, blocks_for(weights * warp), block_threads, stream, weights, parts, scratch,
         gw);
}

#define MPIGRAD_MAKE(T)                                                                                            \
  template void few_channels_forward(const ConvProblem&, const T*, const T*, const T*, scalar::Fused, T*, Stream); \
  template void few_channels_weight(const ConvProblem&, const T*, const T*, float*, T*, Stream, std::int64_t);
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(Float16)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
