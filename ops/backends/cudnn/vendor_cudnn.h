#pragma once
// The functions of cuDNN, loaded at the first call: a build with cuDNN also starts on machines without it.

#include <cudnn.h>

namespace mpigrad::cuda {

// clang-format off
#define MPIGRAD_CUDNN_FUNCTIONS(X) \
  X(cudnnGetVersion) X(cudnnGetErrorString) X(cudnnGetLastErrorString) X(cudnnCreate) \
  X(cudnnSetStream) X(cudnnGetStream) X(cudnnBackendCreateDescriptor) \
  X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) \
  X(cudnnBackendFinalize) X(cudnnBackendExecute)
// clang-format on

struct Cudnn {
#define MPIGRAD_POINTER(name) decltype(&::name) name = nullptr;
  MPIGRAD_CUDNN_FUNCTIONS(MPIGRAD_POINTER)
#undef MPIGRAD_POINTER
};

// Error: the library is not found, or is older than the headers of the build and lacks a function.
const Cudnn& cudnn();

}  // namespace mpigrad::cuda
