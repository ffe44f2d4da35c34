#pragma once
// Matrix products by cuBLASLt, as functions of problems and device pointers, on the compute stream of this thread. Floating-point
// elements of `type`; outputs are overwritten. Errors name the op, the problem and the library's text. The bias is [n].

#include "framework/tensor/dtype.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cuda {

using namespace kernel;

void matmul(DType type, const MatmulProblem& problem, const void* a, const void* b, void* c, const Epilogue& epilogue = {});

}  // namespace mpigrad::cuda
