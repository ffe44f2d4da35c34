#pragma once
// Convolutions and products of matrices by the vendor's libraries, as functions of problems and device pointers, on the compute
// stream of this thread. Floating-point elements of `type`; outputs are overwritten. Errors name the op, the problem and the
// library's text.

#include "framework/tensor/dtype.h"
#include "ops/problems.h"

namespace mpigrad::cuda {

using namespace kernel;

// conv.cpp, by cuDNN
void conv_forward(DType type, const ConvProblem& problem, const void* x, const void* w, void* y, const Epilogue& epilogue = {});
void conv_data(DType type, const ConvProblem& problem, const void* gy, const void* w, void* gx);
void conv_weight(DType type, const ConvProblem& problem, const void* x, const void* gy, void* gw);

// matmul.cpp, by cuBLASLt; bias [n]
void matmul(DType type, const MatmulProblem& problem, const void* a, const void* b, void* c, const Epilogue& epilogue = {});

}  // namespace mpigrad::cuda
