#pragma once
// The functions of cuBLASLt, loaded at the first call: linking would map half a gigabyte at the start of every program.

#include <cublasLt.h>

namespace mpigrad::cuda {

// clang-format off
#define MPIGRAD_CUBLAS_FUNCTIONS(X) \
  X(cublasLtGetVersion) X(cublasLtGetStatusString) X(cublasLtGetStatusName) X(cublasLtCreate) \
  X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) \
  X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute) \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
  X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)
// clang-format on

struct CublasLt {
#define MPIGRAD_POINTER(name) decltype(&::name) name = nullptr;
  MPIGRAD_CUBLAS_FUNCTIONS(MPIGRAD_POINTER)
#undef MPIGRAD_POINTER
};

// Error: the library is not found, or is older than the headers of the build and lacks a function.
const CublasLt& cublas_lt();

}  // namespace mpigrad::cuda
