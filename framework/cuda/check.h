#pragma once
// Helpers for code that calls CUDA: turns result codes into errors and opaque streams into CUDA's type. Without fmt, because nvcc
// does not compile it.

#include <cuda_runtime_api.h>

namespace mpigrad::cuda {

using Stream = void*;  // as in cuda.h, which nvcc cannot read

// Throws "[cuda] CALL failed: TEXT (NAME), GPU 0".
[[noreturn]] void fail_call(cudaError_t code, const char* call);
inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) fail_call(code, call);
}

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace mpigrad::cuda

#define MPIGRAD_CUDA(call) ::mpigrad::cuda::check((call), #call)
