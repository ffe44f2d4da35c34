// Convolutions between 16 and 16 or 32 channels, in 16 bits with tensor cores. A block has a box of outputs and the inputs around
// it in shared memory. Chunks of 8 channels of an input are permuted depending on the input's number, so that the rows of a
// matrix, which are neighbouring inputs, come from different banks.

#include "ops/conv/conv_boxes.cuh"
#include "ops/conv/sixteen_channels.h"

namespace mpigrad::cuda {
namespace {

using Box = BoxForm<4, 4, 16>;

struct alignas(16) Chunk {
  unsigned word[4];
};
// A lane's part of a matrix of weights.
struct alignas(8) WeightPair {
  unsigned word[2];
};

// Index of chunk number `chunk` of 8 channels of pixel `i`.
template <int channels>
__device__ inline int place_of_chunk(int i, int chunk) {
  constexpr int chunks = channels / 8, pixels_of_banks = 64 / channels;
  return i * chunks + (chunk ^ (i / pixels_of_banks % chunks));
}

template <int channels, class T>
__device__ inline void load_image(const Boxes& b, const Corner& at, const T* x, Chunk* image) {
  constexpr int chunks = channels / 8;
  for (int i = static_cast<int>(threadIdx.x); i < Box::image * chunks; i += static_cast<int>(blockDim.x)) {
    const int pixel = i / chunks, chunk = i % chunks;
    const auto from = input_at<Box>(b, at, pixel);
    image[place_of_chunk<channels>(pixel, chunk)] =
        from < 0 ? Chunk{} : reinterpret_cast<const Chunk*>(x + from * channels)[chunk];
  }
}

// Weights in the order of the lanes: for each tap, half of `channels` and block of 8 outputs, two registers per lane. Outputs are
// distributed so that a lane has neighbours in memory. `adjoint`: from weights [channels, taps, outputs], taps in reverse order.
template <int channels, int outputs, bool adjoint, class T>
__global__ void order_weights_kernel(const T* w, WeightPair* ordered) {
  constexpr int halves = channels / 16, blocks = outputs / 8;
  const int i = static_cast<int>(first_index());
  if (i >= taps * halves * blocks * warp) return;
  const int lane = i % warp, block = i / warp % blocks, half = i / warp / blocks % halves, tap = i / warp / blocks / halves;
  const int g = lane / 4, t = lane % 4, to = g / 2 * (outputs / 4) + block * 2 + g % 2;
  const auto weight = [&](int c) {
    return adjoint ? w[(c * taps + taps - 1 - tap) * outputs + to] : w[(to * taps + tap) * channels + c];
  };
  const int c = half * 16 + 2 * t;
  ordered[i] = {{pair_of(weight(c), weight(c + 1)), pair_of(weight(c + 8), weight(c + 9))}};
}

constexpr int forward_threads = 128, rows_of_warp = Box::rows / (forward_threads / warp);

// Rows of the matrix are sixteen outputs along the width, columns sixteen channels of a tap.
template <int channels, int outputs, class T>
__global__ void __launch_bounds__(forward_threads, 4)
    forward_kernel(Boxes b, float factor, const T* x, const WeightPair* weights, const T* bias, T* y) {
  constexpr int halves = channels / 16, blocks = outputs / 8, words = channels / 2, own = outputs / 4;
  __shared__ Chunk image[Box::image * channels / 8];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp, g = lane / 4, t = lane % 4;
  const Corner at = corner_of<Box>(b, blockIdx.x);
  load_image<channels>(b, at, x, image);
  __syncthreads();
  const auto* word = reinterpret_cast<const unsigned*>(image);
  const int first_row = thread / warp * rows_of_warp;
  float sums[rows_of_warp][blocks][4] = {};
  for (int line = 0; line < taps / 3; ++line) {
#pragma unroll
    for (int step = 0; step < 3 * halves; ++step) {
      const int tap = step / halves, half = step % halves;
      const int behind = (line / 3 * Box::image_h + line % 3) * Box::image_w + tap;
      unsigned of_weights[blocks][2];
#pragma unroll
      for (int j = 0; j < blocks; ++j) {
        const WeightPair two = weights[((line * 3 * halves + step) * blocks + j) * warp + lane];
        of_weights[j][0] = two.word[0], of_weights[j][1] = two.word[1];
      }
#pragma unroll
      for (int r = 0; r < rows_of_warp; ++r) {
        const int row = first_row + r;
        const int pixel = (row / Box::h * Box::image_h + row % Box::h) * Box::image_w + g + behind;
        // The input eight positions further has its chunks in the same order; the other chunk of the half is next to the first.
        const int low = place_of_chunk<channels>(pixel, 2 * half) * 4 + t, high = low ^ 4;
        const unsigned a[4] = {word[low], word[low + 8 * words], word[high], word[high + 8 * words]};
#pragma unroll
        for (int j = 0; j < blocks; ++j) multiply_add<T>(sums[r][j], a, of_weights[j]);
      }
    }
  }
  float add[own] = {};
  if (bias)
#pragma unroll
    for (int c = 0; c < own; ++c) add[c] = load(bias[t * own + c]);
#pragma unroll
  for (int r = 0; r < rows_of_warp; ++r) {
    const int row = first_row + r;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto pixel = output_at(b, at.n, at.d + row / Box::h, at.h + row % Box::h, at.w + g + 8 * half);
      if (pixel < 0) continue;
      Pack<T, own> out;
#pragma unroll
      for (int c = 0; c < own; ++c) out.of[c] = store<T>(activated(sums[r][c / 2][2 * half + c % 2] + add[c], factor));
      *reinterpret_cast<Pack<T, own>*>(y + pixel * outputs + t * own) = out;
    }
  }
}

// gw = sum over outputs of gy x: rows are output channels, columns the sixteen channels of a tap; the sum is over sixteen outputs
// along the width. Each warp computes three taps of all outputs.
constexpr int warps_of_weights = 9, taps_of_warp = taps / warps_of_weights;

template <int outputs, class T>
__global__ void __launch_bounds__(warps_of_weights* warp, 2) weight_kernel(Boxes b, const T* x, const T* gy, float* parts) {
  constexpr int channels = 16, tiles = outputs / 16, chunks = outputs / 8;
  __shared__ Chunk image[Box::image * channels / 8];
  __shared__ Chunk cotangents[Box::outputs * chunks];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp, own = thread / warp;
  float sums[tiles][taps_of_warp][2][4] = {};
  for (std::int64_t number = blockIdx.x; number < b.count; number += gridDim.x) {
    const Corner at = corner_of<Box>(b, number);
    __syncthreads();  // the previous box may still be read
    load_image<channels>(b, at, x, image);
    for (int i = thread; i < Box::outputs * chunks; i += static_cast<int>(blockDim.x)) {
      const int output = i / chunks, chunk = i % chunks, row = output / Box::w;
      const auto pixel = output_at(b, at.n, at.d + row / Box::h, at.h + row % Box::h, at.w + output % Box::w);
      cotangents[place_of_chunk<outputs>(output, chunk)] =
          pixel < 0 ? Chunk{} : reinterpret_cast<const Chunk*>(gy + pixel * outputs)[chunk];
    }
    __syncthreads();
    for (int row = 0; row < Box::rows; ++row) {
      unsigned a[tiles][4];
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        // Matrices: outputs 0 to 7 of channels 0 to 7 and 8 to 15, then outputs 8 to 15 of the same channels.
        const int output = row * Box::w + lane / 16 * 8 + lane % 8;
        load_transposed(cotangents + place_of_chunk<outputs>(output, tile * 2 + lane / 8 % 2), a[tile]);
      }
      const int begin = (row / Box::h * Box::image_h + row % Box::h) * Box::image_w;
#pragma unroll
      for (int k = 0; k < taps_of_warp; ++k) {
        // Matrices: inputs 0 to 7 and 8 to 15 of channels 0 to 7, then of channels 8 to 15.
        unsigned of_inputs[4];
        const int pixel = begin + Box::behind(own * taps_of_warp + k) + lane / 8 % 2 * 8 + lane % 8;
        load_transposed(image + place_of_chunk<channels>(pixel, lane / 16), of_inputs);
        const unsigned low[2] = {of_inputs[0], of_inputs[1]}, high[2] = {of_inputs[2], of_inputs[3]};
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
          multiply_add<T>(sums[tile][k][0], a[tile], low);
          multiply_add<T>(sums[tile][k][1], a[tile], high);
        }
      }
    }
  }
  const int g = lane / 4, t = lane % 4;
  float* part = parts + static_cast<std::int64_t>(blockIdx.x) * outputs * taps * channels;
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
    for (int k = 0; k < taps_of_warp; ++k)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int output = tile * 16 + g + i / 2 * 8, c = j * 8 + 2 * t + i % 2;
          part[(output * taps + own * taps_of_warp + k) * channels + c] = sums[tile][k][j][i];
        }
}

// A forward pass from `channels` to `outputs`.
template <int channels, int outputs, bool adjoint, class T>
void convolve(const char* name, const ConvProblem& p, const T* x, const T* w, const T* bias, scalar::Fused fused, void* scratch,
              T* y, Stream stream) {
  auto* ordered = static_cast<WeightPair*>(scratch);
  constexpr int count = taps * channels * outputs / 4;
  launch(name, order_weights_kernel<channels, outputs, adjoint, T>, blocks_for(count), block_threads, stream, w, ordered);
  const auto boxes = boxes_of<Box>(p);
  launch(name, forward_kernel<channels, outputs, T>, static_cast<unsigned>(boxes.count), forward_threads, stream, boxes,
         static_cast<float>(fused.factor), x, ordered, bias, y);
}

std::int64_t weights_of(const ConvProblem& p) { return taps * p.in_channels * p.out_channels; }

}  // namespace

std::int64_t sixteen_channels_scratch(const ConvProblem& p, bool of_weights) {
  return weights_of(p) * (of_weights ? parts_of<Box>(p, weight_parts) * static_cast<std::int64_t>(sizeof(float)) : 2);
}

template <class T>
void sixteen_channels_forward(const ConvProblem& p, const T* x, const T* w, const T* bias, scalar::Fused fused, void* scratch,
                              T* y, Stream stream) {
  const auto run = p.out_channels == 32 ? convolve<16, 32, false, T> : convolve<16, 16, false, T>;
  run("sixteen_channels_forward", p, x, w, bias, fused, scratch, y, stream);
}

// The adjoint of a convolution is a convolution with the taps in reverse order.
template <class T>
void sixteen_channels_data(const ConvProblem& p, const T* gy, const T* w, void* scratch, T* gx, Stream stream) {
  ConvProblem q = p;
  q.in = p.out, q.out = p.in, q.in_channels = p.out_channels, q.out_channels = p.in_channels;
  for (std::size_t a = 0; a < 3; ++a) q.pad_low[a] = 2 - p.pad_low[a];
  const auto run = p.out_channels == 32 ? convolve<32, 16, true, T> : convolve<16, 16, true, T>;
  run("sixteen_channels_data", q, gy, w, nullptr, {}, scratch, gx, stream);
}

template <class T>
void sixteen_channels_weight(const ConvProblem& p, const T* x, const T* gy, void* scratch, T* gw, Stream stream,
                             std::int64_t most_parts) {
  auto* part = static_cast<float*>(scratch);
  const auto parts = parts_of<Box>(p, most_parts), weights = weights_of(p);
  launch("sixteen_channels_weight", p.out_channels == 32 ? weight_kernel<32, T> : weight_kernel<16, T>,
         static_cast<unsigned>(parts), warps_of_weights * warp, stream, boxes_of<Box>(p), x, gy, part);
  launch("sixteen_channels_weight", join_parts_kernel<T>, blocks_for(weights * warp), block_threads, stream, weights, parts, part,
         gw);
}

#define MPIGRAD_MAKE(T)                                                                                                       \
  template void sixteen_channels_forward(const ConvProblem&, const T*, const T*, const T*, scalar::Fused, void*, T*, Stream); \
  template void sixteen_channels_data(const ConvProblem&, const T*, const T*, void*, T*, Stream);                             \
  template void sixteen_channels_weight(const ConvProblem&, const T*, const T*, void*, T*, Stream, std::int64_t);
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(Float16)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
