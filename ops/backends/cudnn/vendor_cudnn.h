#pragma once
// The functions of cuDNN, found when the first of them is called: a build with it starts on machines that do not have it.

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

// Throws where the library is not found, or is older than the headers of the build and lacks a function.
const Cudnn& cudnn();

}  // namespace mpigrad::cuda
