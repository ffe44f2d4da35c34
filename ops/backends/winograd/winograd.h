#pragma once
// Convolutions of 3 x 3 x 3 taps by Winograd's minimal filtering, F(2x2x2, 3x3x3): 64 products for 8 outputs instead of 216; and
// of 1 x 3 x 3 taps, 16 for 4 instead of 36. Same contract as the functions of conv_kernels.h; sums are rounded in another order,
// and a value that is not finite makes NaN of all outputs of a tile that reads it. Sources: Winograd, Arithmetic complexity of
// computations (1980); Lavin and Gray, arXiv 1509.09308; in three dimensions Jia et al., PPoPP 2018.

#include "ops/backends/implementation.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cpu::winograd {

// Three taps along each axis next to each other, or one in depth, which reads and writes the same planes; one group, channels in
// multiples of 16.
bool possible(const ConvProblem&);
// Possible, and faster than a library's convolution: wide vectors, enough tiles for the transform of the weights to pay.
bool suits(Pass, const ConvProblem&);

// Error in none of them; what they are called with is possible.
void conv_forward(const ConvProblem&, const float* x, const float* w, float* y, const Epilogue& = {});
void conv_data(const ConvProblem&, const float* gy, const float* w, float* gx, const Epilogue& = {});
void conv_weight(const ConvProblem&, const float* x, const float* gy, float* gw);

}  // namespace mpigrad::cpu::winograd
