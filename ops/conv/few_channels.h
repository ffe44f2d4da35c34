#pragma once
// Convolutions of images with one to four channels and three taps along each axis, without stride or dilation: kernels of our
// own. T is BFloat16 or Float16 (few_channels_kernels.cu; a quarter to a sixth of cuDNN's time with four channels) or float,
// whose products are exact (few_channels_float32_kernels.cu); sums are float32, in a fixed order.

#include <cstdint>

#include "ops/kernel/problems.h"

namespace mpigrad::cuda {

using Stream = void*;
using kernel::ConvProblem;

inline bool has_three_taps(const ConvProblem& p) {
  const Extent3 ones{1, 1, 1}, threes{3, 3, 3};
  return p.groups == 1 && p.kernel == threes && p.stride == ones && p.dilation == ones;
}
// True if these kernels compute the problem, given that x is aligned to 8 bytes (float: 4) and y or gy to 16.
inline bool has_few_channels(const ConvProblem& p) {
  return has_three_taps(p) && p.in_channels >= 1 && p.in_channels <= 4 && p.out_channels % 16 == 0 && p.out_channels <= 256;
}

// True if the thread's GPU has the instructions (compute capability 8.0).
bool few_channels_run_here();

// y = conv(x, w) + bias (if there is one), then the fused activation
template <class T>
void few_channels_forward(const ConvProblem& problem, const T* x, const T* w, const T* bias, scalar::Fused fused, T* y,
                          Stream stream);

// Blocks of a weight gradient, each with a part of the sum: two for each of 132 multiprocessors.
constexpr std::int64_t weight_parts = 264;

// Bytes of `scratch`. If an element of x is not finite, gradients of other taps of its channel may be non-finite, too.
std::int64_t few_channels_scratch(const ConvProblem& problem);
template <class T>
void few_channels_weight(const ConvProblem& problem, const T* x, const T* gy, float* scratch, T* gw, Stream stream,
                         std::int64_t most_parts = weight_parts);

template <>
void few_channels_forward(const ConvProblem& problem, const float* x, const float* w, const float* bias, scalar::Fused fused,
                          float* y, Stream stream);

// Weight gradients in exact float32, for images with one to four channels, or with 8 to 32 in multiples of four; cuDNN's kernels
// take up to a hundred times as long. x is aligned to 4 bytes, gy to 16.
inline bool has_weights_float32(const ConvProblem& p) {
  const bool fours = p.in_channels >= 8 && p.in_channels <= 32 && p.in_channels % 4 == 0;
  return has_three_taps(p) && ((p.in_channels >= 1 && p.in_channels <= 4) || fours) && p.out_channels % 16 == 0 &&
         p.out_channels <= 256;
}
std::int64_t weights_float32_scratch(const ConvProblem& problem);  // bytes
void weights_float32(const ConvProblem& problem, const float* x, const float* gy, float* scratch, float* gw, Stream stream,
                     std::int64_t most_parts = weight_parts);

}  // namespace mpigrad::cuda
