#pragma once
// Convolutions with 32 channels on one side and 32 or 64 on the other and three taps along each axis, without stride or dilation,
// in 16 bits: kernels of our own (thirty_two_channels_kernels.cu), as cuDNN's reach a quarter of the tensor cores' peak. T is
// BFloat16 or Float16; sums are float32, in a fixed order. They need the GPU that few_channels_run_here() asks for, and operands
// aligned to 16 bytes.

#include <cstdint>

#include "ops/conv/few_channels.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cuda {

// True if these kernels compute a convolution from `in` to `out` channels: its forward pass; its data pass goes from out to in.
inline bool has_thirty_two_outputs(const ConvProblem& p, std::int64_t in, std::int64_t out) {
  return has_three_taps(p) && out == 32 && (in == 32 || in == 64);
}
inline bool has_thirty_two_channels(const ConvProblem& p) {
  return has_thirty_two_outputs(p, p.in_channels, p.out_channels) || has_thirty_two_outputs(p, p.out_channels, p.in_channels);
}

// Bytes of `scratch`, for the weight gradient or for another pass. If an element of x is not finite, gradients of other taps of
// its channel may be non-finite, too.
std::int64_t thirty_two_channels_scratch(const ConvProblem& problem, bool of_weights);
// y = conv(x, w) + bias (if there is one), then the fused activation
template <class T>
void thirty_two_channels_forward(const ConvProblem& problem, const T* x, const T* w, const T* bias, scalar::Fused fused,
                                 void* scratch, T* y, Stream stream);
template <class T>
void thirty_two_channels_data(const ConvProblem& problem, const T* gy, const T* w, void* scratch, T* gx, Stream stream);
template <class T>
void thirty_two_channels_weight(const ConvProblem& problem, const T* x, const T* gy, void* scratch, T* gw, Stream stream,
                                std::int64_t most_parts = weight_parts);

}  // namespace mpigrad::cuda
