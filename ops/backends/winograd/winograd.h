#pragma once
// Convolutions with 3 x 3 x 3 taps by Winograd's minimal filtering, F(2x2x2, 3x3x3): 64 products for 8 outputs instead of 216;
// and with 1 x 3 x 3 taps, 16 products for 4 outputs instead of 36. Same contract as the functions of conv_kernels.h, except that
// sums are rounded in another order, and a non-finite value makes all outputs of each tile that reads it NaN. Sources: Winograd,
// Arithmetic complexity of computations (1980); Lavin and Gray, arXiv 1509.09308; in three dimensions Jia et al., PPoPP 2018.

#include "ops/backends/implementation.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cpu::winograd {

// True for three adjacent taps along each axis, or one tap in depth with as many input as output planes; one group, channels in
// multiples of 16.
bool possible(const ConvProblem&);
// Possible, and faster than a library's convolution: wide vectors, and enough tiles to amortise the transform of the weights.
bool suits(Pass, const ConvProblem&);

// These functions have no errors; possible() must hold for the problem.
void conv_forward(const ConvProblem&, const float* x, const float* w, float* y, const Epilogue& = {});
void conv_data(const ConvProblem&, const float* gy, const float* w, float* gx, const Epilogue& = {});
void conv_weight(const ConvProblem&, const float* x, const float* gy, float* gw);

}  // namespace mpigrad::cpu::winograd
