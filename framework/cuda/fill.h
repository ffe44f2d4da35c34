#pragma once
// Kernels of the foundation itself.

#include <cstdint>

#include "framework/cuda/cuda.h"

namespace mpigrad::cuda {

// y[i] = value; T is one of the unsigned integers.
template <class T>
void fill_elements(T* y, T value, std::int64_t count, Stream stream);

}  // namespace mpigrad::cuda
