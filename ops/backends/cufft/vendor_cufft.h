#pragma once
// The functions of cuFFT, loaded at the first call, as those of cuBLASLt are.

#include <cufft.h>

namespace mpigrad::cuda {

// clang-format off
#define MPIGRAD_CUFFT_FUNCTIONS(X) \
  X(cufftCreate) X(cufftMakePlanMany64) X(cufftDestroy) X(cufftSetStream) \
  X(cufftExecC2C) X(cufftExecR2C) X(cufftExecC2R) X(cufftExecZ2Z) X(cufftExecD2Z) X(cufftExecZ2D)
// clang-format on

struct Cufft {
#define MPIGRAD_POINTER(name) decltype(&::name) name = nullptr;
  MPIGRAD_CUFFT_FUNCTIONS(MPIGRAD_POINTER)
#undef MPIGRAD_POINTER
};

// Error: the library is not found, or is older than the headers of the build and lacks a function.
const Cufft& cufft();

}  // namespace mpigrad::cuda
