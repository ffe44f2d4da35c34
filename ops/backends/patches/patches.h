#pragma once
// Convolutions whose windows neither overlap nor leave gaps (kernel = stride, no padding), such as a U-Net's transposed
// convolutions and 1 x 1 x 1: products of matrices whose rows are rows of x and y, so nothing is gathered element by element. E
// is float or BFloat16, of activations, and W of weights. 16-bit rows are converted in the cache: products and sums are in
// float32, and a result is rounded once.

#include "framework/tensor/half.h"
#include "ops/backends/implementation.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cpu::patches {

// True for these problems with one group and at least 64 outputs; in float32, where libraries are fast, not for the forward and
// data passes of 1 x 1 x 1.
template <class E>
bool suits(Pass, const ConvProblem&);

// Same contract as the functions of conv_kernels.h; suits() must hold for the problem.
template <class E, class W>
void conv_forward(const ConvProblem&, const E* x, const W* w, E* y, const Epilogue& = {});
template <class E, class W>
void conv_data(const ConvProblem&, const E* gy, const W* w, E* gx, const Epilogue& = {});
template <class E, class W>
void conv_weight(const ConvProblem&, const E* x, const E* gy, W* gw);

}  // namespace mpigrad::cpu::patches
