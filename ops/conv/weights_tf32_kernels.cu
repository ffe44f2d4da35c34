// Weight gradients in TF32 with tensor cores: gw = sum over outputs of gy x. Rows of the matrices are sixteen output channels,
// columns eight channels of a tap, or four of two taps; the sum is over outputs along the width, eight at a time. A block has a
// box of outputs and the inputs around it in shared memory, rounded, while the next box is loaded to registers.

#include "ops/conv/conv_boxes.cuh"
#include "ops/conv/weights_tf32.h"

namespace mpigrad::cuda {
namespace {

struct alignas(16) Four {
  unsigned word[4];
};
constexpr int row_outputs = 16;  // output channels of a tile

// Index of word `c` of sixteen of pixel `i`: words of four neighbours are in different banks.
__device__ inline int place_of_word(int i, int c) { return i * 16 + (c ^ (i / 2 % 2 * 8)); }

__device__ inline Four rounded(const Pack<float, 4>& x) {
  return {{tf32_of(x.of[0]), tf32_of(x.of[1]), tf32_of(x.of[2]), tf32_of(x.of[3])}};
}

// A thread's numbers of the next box, four at a time: inputs with 4 `fours` channels, and `tiles` times sixteen outputs.
template <class Box, int threads, int fours, int tiles>
struct Coming {
  static constexpr int of_image = (Box::image * fours + threads - 1) / threads, quads = tiles * 4,
                       of_outputs = (Box::outputs * quads + threads - 1) / threads;
  Pack<float, 4> image[of_image], outputs[of_outputs];

  __device__ void fetch(const Boxes& b, std::int64_t number, const float* x, const float* gy, std::int64_t width, int first) {
    const Corner at = corner_of<Box>(b, number);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int k = 0; k < of_image; ++k) {
      const int i = thread + k * threads;
      const auto pixel = i < Box::image * fours ? input_at<Box>(b, at, i / fours) : -1;
      image[k] = pixel < 0 ? Pack<float, 4>{} : reinterpret_cast<const Pack<float, 4>*>(x)[pixel * fours + i % fours];
    }
#pragma unroll
    for (int k = 0; k < of_outputs; ++k) {
      const int i = thread + k * threads, output = i / quads, row = output / Box::w;
      const auto pixel =
          i < Box::outputs * quads ? output_at(b, at.n, at.d + row / Box::h, at.h + row % Box::h, at.w + output % Box::w) : -1;
      outputs[k] =
          pixel < 0 ? Pack<float, 4>{} : *reinterpret_cast<const Pack<float, 4>*>(gy + pixel * width + first + i % quads * 4);
    }
  }
  __device__ void store(unsigned* to_image, unsigned* to_outputs) const {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int k = 0; k < of_image; ++k) {
      const int i = thread + k * threads, pixel = i / fours, c = i % fours * 4;
      if (i < Box::image * fours)
        *reinterpret_cast<Four*>(to_image + (fours == 4 ? place_of_word(pixel, c) : i * 4)) = rounded(image[k]);
    }
#pragma unroll
    for (int k = 0; k < of_outputs; ++k) {
      const int i = thread + k * threads, output = i / quads, tile = i % quads / 4, c = i % 4 * 4;
      if (i < Box::outputs * quads)
        *reinterpret_cast<Four*>(to_outputs + tile * Box::outputs * row_outputs + place_of_word(output, c)) = rounded(outputs[k]);
    }
  }
};

// Loads channels g and g + 8 of outputs first + t and first + t + 4.
__device__ inline void load_rows(const unsigned* outputs, int first, int g, int t, unsigned (&a)[4]) {
  a[0] = outputs[place_of_word(first + t, g)], a[1] = outputs[place_of_word(first + t, g + 8)];
  a[2] = outputs[place_of_word(first + t + 4, g)], a[3] = outputs[place_of_word(first + t + 4, g + 8)];
}

// ---- sixteen channels: each of nine warps computes three taps of all outputs

constexpr int sixteen_threads = 9 * warp, sixteen_tiles = 2;
using SixteenBox = BoxForm<2, 4, 16>;

__global__ void __launch_bounds__(sixteen_threads, 2)
    sixteen_kernel(Boxes b, std::int64_t width, const float* x, const float* gy, float* parts) {
  using Box = SixteenBox;
  constexpr int channels = 16;
  __shared__ Four of_image[Box::image * channels / 4], of_outputs[sixteen_tiles * Box::outputs * row_outputs / 4];
  unsigned *image = of_image[0].word, *outputs = of_outputs[0].word;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp, g = lane / 4, t = lane % 4, own = thread / warp * 3;
  const int first = static_cast<int>(blockIdx.y) * sixteen_tiles * row_outputs;
  float sums[sixteen_tiles][3][2][4] = {};
  Coming<Box, sixteen_threads, channels / 4, sixteen_tiles> coming;
  if (static_cast<std::int64_t>(blockIdx.x) < b.count) coming.fetch(b, blockIdx.x, x, gy, width, first);
  for (std::int64_t number = blockIdx.x; number < b.count; number += gridDim.x) {
    coming.store(image, outputs);
    __syncthreads();
    if (number + gridDim.x < b.count) coming.fetch(b, number + gridDim.x, x, gy, width, first);
#pragma unroll 1
    for (int step = 0; step < Box::rows * 2; ++step) {
      const int row = step / 2, begin = (row / Box::h * Box::image_h + row % Box::h) * Box::image_w + step % 2 * 8 + t;
      unsigned a[sixteen_tiles][4];
#pragma unroll
      for (int tile = 0; tile < sixteen_tiles; ++tile)
        load_rows(outputs + tile * Box::outputs * row_outputs, step * 8, g, t, a[tile]);
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        const int pixel = begin + Box::behind(own) + k;  // three taps along the width
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const unsigned of_inputs[2] = {image[place_of_word(pixel, half * 8 + g)],
                                         image[place_of_word(pixel + 4, half * 8 + g)]};
#pragma unroll
          for (int tile = 0; tile < sixteen_tiles; ++tile) multiply_add_tf32(sums[tile][k][half], a[tile], of_inputs);
        }
      }
    }
    __syncthreads();
  }
  float* part = parts + (static_cast<std::int64_t>(blockIdx.x) * width + first) * taps * channels;
#pragma unroll
  for (int tile = 0; tile < sixteen_tiles; ++tile)
#pragma unroll
    for (int k = 0; k < 3; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int output = tile * row_outputs + g + i / 2 * 8, c = half * 8 + 2 * t + i % 2;
          part[(output * taps + own + k) * channels + c] = sums[tile][k][half][i];
        }
}

// ---- four channels: each of eight warps computes all taps from two rows of outputs

constexpr int four_threads = 8 * warp, pairs = (taps + 1) / 2;
using FourBox = BoxForm<4, 4, 16>;

__global__ void __launch_bounds__(four_threads, 2)
    four_kernel(Boxes b, std::int64_t width, const float* x, const float* gy, float* parts) {
  using Box = FourBox;
  constexpr int channels = 4, rows_of_warp = Box::rows * warp / four_threads;
  __shared__ Four of_image[Box::image * channels / 4], of_outputs[Box::outputs * row_outputs / 4];
  unsigned *image = of_image[0].word, *outputs = of_outputs[0].word;
  __shared__ float sums[row_outputs][pairs * 8];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp, g = lane / 4, t = lane % 4;
  const int first = static_cast<int>(blockIdx.y) * row_outputs;
  float sum[pairs][4] = {};
  Coming<Box, four_threads, 1, 1> coming;
  if (static_cast<std::int64_t>(blockIdx.x) < b.count) coming.fetch(b, blockIdx.x, x, gy, width, first);
  for (std::int64_t number = blockIdx.x; number < b.count; number += gridDim.x) {
    coming.store(image, outputs);
    __syncthreads();
    if (number + gridDim.x < b.count) coming.fetch(b, number + gridDim.x, x, gy, width, first);
#pragma unroll 1
    for (int step = 0; step < rows_of_warp * 2; ++step) {
      const int row = thread / warp * rows_of_warp + step / 2;
      const int begin = (row / Box::h * Box::image_h + row % Box::h) * Box::image_w + step % 2 * 8 + t;
      unsigned a[4];
      load_rows(outputs, row * Box::w + step % 2 * 8, g, t, a);
#pragma unroll
      for (int j = 0; j < pairs; ++j) {
        // Column g is channel g % 4 of the first tap or of the second tap, which the last pair does not have.
        const int low = Box::behind(2 * j), high = 2 * j + 1 < taps ? Box::behind(2 * j + 1) : low;
        const int word = (begin + (g / 4 == 0 ? low : high)) * channels + g % 4;
        const bool any = 2 * j + 1 < taps || g / 4 == 0;
        const unsigned one = image[word], other = image[word + 4 * channels];
        const unsigned of_inputs[2] = {any ? one : 0, any ? other : 0};
        multiply_add_tf32(sum[j], a, of_inputs);
      }
    }
    __syncthreads();
  }
  // The warps add one after the other.
  for (int of = 0; of < four_threads / warp; ++of) {
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
  for (int i = thread; i < row_outputs * taps * channels; i += four_threads)
    part[i] = sums[i / (taps * channels)][i % (taps * channels)];
}

std::int64_t parts_of_weights(const ConvProblem& p, std::int64_t most) {
  return p.in_channels == 16 ? parts_of<SixteenBox>(p, most) : parts_of<FourBox>(p, most);
}

}  // namespace

std::int64_t weights_tf32_scratch(const ConvProblem& p) {
  return parts_of_weights(p, weight_parts) * p.out_channels * taps * p.in_channels * static_cast<std::int64_t>(sizeof(float));
}

void weights_tf32(const ConvProblem& p, const float* x, const float* gy, float* scratch, float* gw, Stream stream,
                  std::int64_t most_parts) {
  const auto parts = parts_of_weights(p, most_parts), weights = p.out_channels * taps * p.in_channels;
  const bool sixteen = p.in_channels == 16;
  const auto groups = p.out_channels / (sixteen ? sixteen_tiles * row_outputs : row_outputs);
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(groups));
  launch("weights_tf32", sixteen ? sixteen_kernel : four_kernel, grid, sixteen ? sixteen_threads : four_threads, stream,
         sixteen ? boxes_of<SixteenBox>(p) : boxes_of<FourBox>(p), p.out_channels, x, gy, scratch);
  launch("weights_tf32", join_parts_kernel<float>, blocks_for(weights * warp), block_threads, stream, weights, parts, scratch,
         gw);
}

}  // namespace mpigrad::cuda
