// Convolutions with 32 channels on one side and 32 or 64 on the other, in 16 bits with tensor cores. A block has a box of outputs
// and the inputs around it in shared memory, some channels at a time. A warp uses what it has in registers for all taps that need
// it: loads from shared memory took the time, not products.

#include "ops/conv/conv_boxes.cuh"
#include "ops/conv/thirty_two_channels.h"

namespace mpigrad::cuda {
namespace {

using Box = BoxForm<4, 4, 16>;

struct alignas(16) Chunk {
  unsigned word[4];
};

// Index of chunk number `chunk` of 8 channels of pixel `i`: chunks of eight neighbours are in different banks.
template <int chunks>
__device__ inline int place_of(int i, int chunk) {
  constexpr int pixels_of_banks = 8 / chunks;
  return i * chunks + (chunk ^ (i / pixels_of_banks % chunks));
}

// Loads channels [first, first + 8 chunks) of `channels` of the pixels around a box.
template <int chunks, class T>
__device__ inline void start_image(const Boxes& b, const Corner& at, const T* x, int channels, int first, Chunk* image) {
  for (int i = static_cast<int>(threadIdx.x); i < Box::image * chunks; i += static_cast<int>(blockDim.x)) {
    const int pixel = i / chunks, chunk = i % chunks;
    const auto from = input_at<Box>(b, at, pixel);
    start_copy(image + place_of<chunks>(pixel, chunk), x + (from < 0 ? 0 : from) * channels + first + chunk * 8, from >= 0);
  }
}

// ---- outputs

constexpr int group = 32, halves = group / 16, blocks = group / 8;  // channels of a step; mma takes 16 inputs and 8 outputs
// A warp computes two planes of four rows of outputs, and has the rows of inputs around them for each step.
constexpr int forward_threads = 64, planes = 2, lines = Box::h, input_lines = Box::image_h;

// Weights in the order of the lanes: for each group of inputs, column of taps, half of the group, tap of the column and pair of
// blocks of 8 outputs, four registers per lane. Outputs are distributed so that a lane has neighbours in memory. `adjoint`: from
// weights [channels, taps, outputs], taps in reverse order.
template <class T>
__global__ void order_weights_kernel(int channels, bool adjoint, const T* w, Chunk* ordered) {
  const int i = static_cast<int>(first_index());
  if (i >= channels / 16 * taps * blocks / 2 * warp) return;
  const int lane = i % warp, pair = i / warp % 2, of_column = i / warp / 2 % 9, half = i / warp / 2 / 9 % halves;
  const int column = i / warp / 2 / 9 / halves % 3, first = i / warp / 2 / 9 / halves / 3 * group + half * 16;
  const int tap = of_column * 3 + column, g = lane / 4, t = lane % 4;
  Chunk four;
  for (int j = 0; j < 2; ++j) {
    const int to = g / 2 * (group / 4) + (pair * 2 + j) * 2 + g % 2;
    const auto weight = [&](int c) {
      return adjoint ? w[(c * taps + taps - 1 - tap) * group + to] : w[(to * taps + tap) * channels + c];
    };
    const int c = first + 2 * t;
    four.word[2 * j] = pair_of(weight(c), weight(c + 1)), four.word[2 * j + 1] = pair_of(weight(c + 8), weight(c + 9));
  }
  ordered[i] = four;
}

template <class T>
__global__ void __launch_bounds__(forward_threads, 4)
    forward_kernel(Boxes b, int channels, float factor, const T* x, const Chunk* weights, const T* bias, T* y) {
  constexpr int chunks = group / 8;
  __shared__ Chunk image[Box::image * chunks];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp, first_plane = thread / warp * planes;
  const Corner at = corner_of<Box>(b, blockIdx.x);
  float sums[planes][lines][blocks][4] = {};
  // Matrices of a lane: pixels 0 to 7 and 8 to 15 of channels 0 to 7 of a half, then of channels 8 to 15.
  const int of_lane = lane / 8 % 2 * 8 + lane % 8, chunk_of_lane = lane / 16;
  for (int first = 0; first < channels; first += group) {
    if (first > 0) __syncthreads();  // the previous channels may still be read
    start_image<chunks>(b, at, x, channels, first, image);
    wait_for_copies();
    __syncthreads();
#pragma unroll 1
    for (int step = 0; step < 3 * halves; ++step) {
      const int column = step / halves, half = step % halves, pixel = of_lane + column;
      const Chunk* of_step = weights + (first / group * 3 * halves + step) * 9 * 2 * warp + lane;
      // Chunk c of pixel 2 i + j of row r is at c ^ (i + r) % 4, as rows have 18 pixels.
      const Chunk* base[4];
#pragma unroll
      for (int r = 0; r < 4; ++r)
        base[r] = image + (first_plane * input_lines * Box::image_w + pixel) * chunks +
                  ((half * 2 + chunk_of_lane) ^ ((pixel / 2 + r) % 4));
      unsigned a[planes + 2][input_lines][4];
      const auto load_plane = [&](auto number) {
        constexpr int plane = decltype(number)::value;
#pragma unroll
        for (int line = 0; line < input_lines; ++line) {
          const int row = plane * input_lines + line;
          load_matrices(base[row % 4] + row * Box::image_w * chunks, a[plane][line]);
        }
      };
      const auto multiply = [&](auto number) {
        constexpr int depth = decltype(number)::value;
#pragma unroll
        for (int height = 0; height < 3; ++height) {
          unsigned of_weights[blocks][2];
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            const Chunk four = of_step[((depth * 3 + height) * 2 + pair) * warp];
#pragma unroll
            for (int j = 0; j < 4; ++j) of_weights[pair * 2 + j / 2][j % 2] = four.word[j];
          }
#pragma unroll
          for (int plane = 0; plane < planes; ++plane)
#pragma unroll
            for (int line = 0; line < lines; ++line)
#pragma unroll
              for (int j = 0; j < blocks; ++j)
                multiply_add<T>(sums[plane][line][j], a[depth + plane][height + line], of_weights[j]);
        }
      };
      load_plane(std::integral_constant<int, 0>{});
      load_plane(std::integral_constant<int, 1>{});
      multiply(std::integral_constant<int, 0>{});
      load_plane(std::integral_constant<int, 2>{});
      multiply(std::integral_constant<int, 1>{});
      load_plane(std::integral_constant<int, 3>{});
      multiply(std::integral_constant<int, 2>{});
    }
  }
  constexpr int own = group / 4;
  const int g = lane / 4, t = lane % 4;
  float add[own] = {};
  if (bias)
#pragma unroll
    for (int c = 0; c < own; ++c) add[c] = load(bias[t * own + c]);
#pragma unroll
  for (int plane = 0; plane < planes; ++plane)
#pragma unroll
    for (int line = 0; line < lines; ++line)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto pixel = output_at(b, at.n, at.d + first_plane + plane, at.h + line, at.w + g + 8 * half);
        if (pixel < 0) continue;
        Pack<T, own> out;
#pragma unroll
        for (int c = 0; c < own; ++c)
          out.of[c] = store<T>(activated(sums[plane][line][c / 2][2 * half + c % 2] + add[c], factor));
        *reinterpret_cast<Pack<T, own>*>(y + pixel * group + t * own) = out;
      }
}

// ---- weights

// gw = sum over outputs of gy x: rows are 32 output channels, columns 16 input channels of a tap; the sum is over sixteen outputs
// along the width. Each warp computes three taps, one above the other: a row of inputs is multiplied with three rows of outputs,
// which stay in registers.
constexpr int warps_of_weights = 9, tiles = group / 16, columns = 16;

template <class T>
__global__ void __launch_bounds__(warps_of_weights* warp, 2)
    weight_kernel(Boxes b, int channels, int outputs, const T* x, const T* gy, float* parts) {
  constexpr int chunks = columns / 8, of_outputs = group / 8;
  __shared__ Chunk image[Box::image * chunks];
  __shared__ Chunk cotangents[Box::outputs * of_outputs];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp, own = thread / warp;
  const int depth = own / 3, column = own % 3;
  const int first = static_cast<int>(blockIdx.y) % (channels / columns) * columns;
  const int first_output = static_cast<int>(blockIdx.y) / (channels / columns) * group;
  float sums[tiles][3][2][4] = {};
  for (std::int64_t number = blockIdx.x; number < b.count; number += gridDim.x) {
    const Corner at = corner_of<Box>(b, number);
    __syncthreads();  // the previous box may still be read
    start_image<chunks>(b, at, x, channels, first, image);
    for (int i = thread; i < Box::outputs * of_outputs; i += static_cast<int>(blockDim.x)) {
      const int output = i / of_outputs, chunk = i % of_outputs, row = output / Box::w;
      const auto pixel = output_at(b, at.n, at.d + row / Box::h, at.h + row % Box::h, at.w + output % Box::w);
      start_copy(cotangents + place_of<of_outputs>(output, chunk),
                 gy + (pixel < 0 ? 0 : pixel) * outputs + first_output + chunk * 8, pixel >= 0);
    }
    wait_for_copies();
    __syncthreads();
#pragma unroll 1
    for (int plane = 0; plane < Box::d; ++plane) {
      unsigned a[3][tiles][4];
#pragma unroll
      for (int line = 0; line < Box::image_h; ++line) {
        if (line < Box::h)
#pragma unroll
          for (int tile = 0; tile < tiles; ++tile) {
            // Matrices: outputs 0 to 7 of channels 0 to 7 and 8 to 15, then outputs 8 to 15 of the same channels.
            const int output = (plane * Box::h + line) * Box::w + lane / 16 * 8 + lane % 8;
            load_transposed(cotangents + place_of<of_outputs>(output, tile * 2 + lane / 8 % 2), a[line % 3][tile]);
          }
        // Matrices: inputs 0 to 7 and 8 to 15 of channels 0 to 7, then of channels 8 to 15.
        unsigned of_inputs[4];
        const int pixel = ((plane + depth) * Box::image_h + line) * Box::image_w + column + lane / 8 % 2 * 8 + lane % 8;
        load_transposed(image + place_of<chunks>(pixel, lane / 16), of_inputs);
        const unsigned low[2] = {of_inputs[0], of_inputs[1]}, high[2] = {of_inputs[2], of_inputs[3]};
#pragma unroll
        for (int height = 0; height < 3; ++height) {
          if (line < height || line - height >= Box::h) continue;
#pragma unroll
          for (int tile = 0; tile < tiles; ++tile) {
            multiply_add<T>(sums[tile][height][0], a[(line - height) % 3][tile], low);
            multiply_add<T>(sums[tile][height][1], a[(line - height) % 3][tile], high);
          }
        }
      }
    }
  }
  const int g = lane / 4, t = lane % 4;
  float* part = parts + static_cast<std::int64_t>(blockIdx.x) * outputs * taps * channels;
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
    for (int height = 0; height < 3; ++height)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int output = first_output + tile * 16 + g + i / 2 * 8, c = first + j * 8 + 2 * t + i % 2;
          part[(output * taps + (depth * 3 + height) * 3 + column) * channels + c] = sums[tile][height][j][i];
        }
}

std::int64_t weights_of(const ConvProblem& p) { return taps * p.in_channels * p.out_channels; }
// Number of groups of blocks, one for each 16 inputs and 32 outputs; a block processes one box after the other.
std::int64_t groups_of_weights(const ConvProblem& p) { return p.in_channels / columns * (p.out_channels / group); }
std::int64_t parts_of_weights(const ConvProblem& p, std::int64_t most) {
  const auto each = most / groups_of_weights(p);
  return parts_of<Box>(p, each < 1 ? 1 : each);
}

template <class T>
void convolve(const char* name, const ConvProblem& p, bool adjoint, const T* x, const T* w, const T* bias, scalar::Fused fused,
              void* scratch, T* y, Stream stream) {
  auto* ordered = static_cast<Chunk*>(scratch);
  const auto channels = static_cast<int>(p.in_channels);
  launch(name, order_weights_kernel<T>, blocks_for(taps * p.in_channels * group / 8), block_threads, stream, channels, adjoint, w,
         ordered);
  const auto boxes = boxes_of<Box>(p);
  launch(name, forward_kernel<T>, static_cast<unsigned>(boxes.count), forward_threads, stream, boxes, channels,
         static_cast<float>(fused.factor), x, ordered, bias, y);
}

}  // namespace

std::int64_t thirty_two_channels_scratch(const ConvProblem& p, bool of_weights) {
  return weights_of(p) * (of_weights ? parts_of_weights(p, weight_parts) * static_cast<std::int64_t>(sizeof(float)) : 2);
}

template <class T>
void thirty_two_channels_forward(const ConvProblem& p, const T* x, const T* w, const T* bias, scalar::Fused fused, void* scratch,
                                 T* y, Stream stream) {
  convolve("thirty_two_channels_forward", p, false, x, w, bias, fused, scratch, y, stream);
}

// The adjoint of a convolution is a convolution with the taps in reverse order.
template <class T>
void thirty_two_channels_data(const ConvProblem& p, const T* gy, const T* w, void* scratch, T* gx, Stream stream) {
  ConvProblem q = p;
  q.in = p.out, q.out = p.in, q.in_channels = p.out_channels, q.out_channels = p.in_channels;
  for (std::size_t a = 0; a < 3; ++a) q.pad_low[a] = 2 - p.pad_low[a];
  convolve<T>("thirty_two_channels_data", q, true, gy, w, nullptr, {}, scratch, gx, stream);
}

template <class T>
void thirty_two_channels_weight(const ConvProblem& p, const T* x, const T* gy, void* scratch, T* gw, Stream stream,
                                std::int64_t most_parts) {
  auto* part = static_cast<float*>(scratch);
  const auto parts = parts_of_weights(p, most_parts), weights = weights_of(p);
  launch("thirty_two_channels_weight", weight_kernel<T>,
         dim3(static_cast<unsigned>(parts), static_cast<unsigned>(groups_of_weights(p))), warps_of_weights * warp, stream,
         boxes_of<Box>(p), static_cast<int>(p.in_channels), static_cast<int>(p.out_channels), x, gy, part);
  launch("thirty_two_channels_weight", join_parts_kernel<T>, blocks_for(weights * warp), block_threads, stream, weights, parts,
         part, gw);
}

#define MPIGRAD_MAKE(T)                                                                                                          \
  template void thirty_two_channels_forward(const ConvProblem&, const T*, const T*, const T*, scalar::Fused, void*, T*, Stream); \
  template void thirty_two_channels_data(const ConvProblem&, const T*, const T*, void*, T*, Stream);                             \
  template void thirty_two_channels_weight(const ConvProblem&, const T*, const T*, void*, T*, Stream, std::int64_t);
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(Float16)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
