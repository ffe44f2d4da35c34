#pragma once
// Convolutions by cuDNN or by kernels of our own, as functions of problems and device pointers, on the compute stream of
// this thread. Floating-point elements of `type`; outputs are overwritten. Errors name the op, the problem and the library's
// text.

#include "framework/tensor/dtype.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cuda {

using namespace kernel;

void conv_forward(DType type, const ConvProblem& problem, const void* x, const void* w, void* y, const Epilogue& epilogue = {});
void conv_data(DType type, const ConvProblem& problem, const void* gy, const void* w, void* gx);
void conv_weight(DType type, const ConvProblem& problem, const void* x, const void* gy, void* gw);

}  // namespace mpigrad::cuda
