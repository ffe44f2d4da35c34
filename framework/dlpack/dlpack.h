#pragma once
// DLPack: tensors that other libraries of the process (NumPy, PyTorch, JAX, CuPy) read and write without a copy. A program that
// uses it includes this header, which <mpigrad/mpigrad.h> does not. dlpack.cpp implements it where DLPack's header is found when
// the library is built (Debian: libdlpack-dev), absent.cpp elsewhere.

#include "framework/tensor/tensor.h"

struct DLManagedTensor;  // of <dlpack/dlpack.h>

namespace mpigrad {

// Whether this build has DLPack. Without it the two functions below throw an Error.
bool dlpack_available();

// x for another library: row-major, on x's device. The caller calls its `deleter`, once; until then it keeps the memory alive.
// Both sides read and write the same memory: the rules of Tensor::over() hold for writes of the other library. On a GPU the host
// waits until x is computed. A distributed tensor is this rank's block. Errors: the dry device; read-only memory, for which
// DLPack before version 1 has no flag; elements that a tape did not keep.
DLManagedTensor* to_dlpack(const Tensor& x);

// A tensor over the memory of another library, by Tensor::over(): the library must not change it while a tape needs it. Takes
// `managed` over and calls its deleter when the last tensor that uses the memory is gone; after an Error it still belongs to the
// caller. On a GPU the other library has completed its work.
// Errors: elements of a type that tensors do not have, strides that are not row-major (copy them with from_strided()), more than
// 8 dimensions, another device than the CPU and this thread's GPU.
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace mpigrad
