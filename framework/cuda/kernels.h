#pragma once
// Kernels of framework/cuda, as functions of pointers.

#include <cstdint>

#include "framework/engine/step_scalars.h"
#include "framework/tensor/strided.h"

namespace mpigrad::cuda {

using Stream = void*;

// y[i] = value; T is one of the unsigned integers.
template <class T>
void fill_elements(T* y, T value, std::int64_t count, Stream stream);
// Elements of `bytes` bytes, 1 to 16; the first array of the walk is `to`.
template <int bytes>
void move_elements(void* to, const void* from, const StridedWalk<2>& walk, std::int64_t count, Stream stream);
// y[i] = table[x[i]]; X std::uint8_t or std::uint16_t, T float or double; the table has an element for each value of X.
template <class X, class T>
void look_up_elements(const X* x, const T* table, T* y, std::int64_t count, Stream stream);
template <class T>
void add_elements(T* to, const T* from, const StridedWalk<2>& walk, std::int64_t count, Stream stream);

// *to = scalars, which are passed as a kernel argument.
void set_scalars(StepScalars* to, const StepScalars& scalars, Stream stream);

}  // namespace mpigrad::cuda
