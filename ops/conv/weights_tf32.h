#pragma once
// Weight gradients of convolutions with few or 16 channels and three taps along each axis, without stride or dilation, in float32
// with factors rounded to TF32: kernels of our own (weights_tf32_kernels.cu), as cuDNN's take most of a step. Sums are float32,
// in a fixed order. They need the GPU that few_channels_run_here() asks for, and operands aligned to 16 bytes.

#include <cstdint>

#include "ops/conv/few_channels.h"
#include "ops/conv/sixteen_channels.h"

namespace mpigrad::cuda {

inline bool has_weights_tf32(const ConvProblem& p) {
  return p.in_channels == 16 ? has_sixteen_channels(p) && p.out_channels == 32 : p.in_channels == 4 && has_few_channels(p);
}
// Bytes of `scratch`. If an element of x is not finite, gradients of other taps of its channel may be non-finite, too.
std::int64_t weights_tf32_scratch(const ConvProblem& problem);
void weights_tf32(const ConvProblem& problem, const float* x, const float* gy, float* scratch, float* gw, Stream stream,
                  std::int64_t most_parts = weight_parts);

}  // namespace mpigrad::cuda
