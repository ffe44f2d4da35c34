#pragma once
// Convolutions between 16 and 16 or 32 channels with three taps along each axis, without stride or dilation, in 16 bits: kernels
// of our own (sixteen_channels_kernels.cu), as cuDNN's reach a tenth of the tensor cores' peak. T is BFloat16 or Float16; sums
// are float32, in a fixed order. They need the GPU that few_channels_run_here() asks for, and operands aligned to 16 bytes.

#include <cstdint>

#include "ops/conv/few_channels.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cuda {

inline bool has_sixteen_channels(const ConvProblem& p) {
  return has_three_taps(p) && p.in_channels == 16 && (p.out_channels == 16 || p.out_channels == 32);
}

// Bytes of `scratch`, for the weight gradient or for another pass.
std::int64_t sixteen_channels_scratch(const ConvProblem& problem, bool of_weights);
// y = conv(x, w) + bias (if there is one), then the fused activation
template <class T>
void sixteen_channels_forward(const ConvProblem& problem, const T* x, const T* w, const T* bias, scalar::Fused fused,
                              void* scratch, T* y, Stream stream);
template <class T>
void sixteen_channels_data(const ConvProblem& problem, const T* gy, const T* w, void* scratch, T* gx, Stream stream);
template <class T>
void sixteen_channels_weight(const ConvProblem& problem, const T* x, const T* gy, void* scratch, T* gw, Stream stream,
                             std::int64_t most_parts = weight_parts);

}  // namespace mpigrad::cuda
