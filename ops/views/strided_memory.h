#pragma once
// Copies between tensors and arrays of the caller that have gaps, such as the interior of an array with ghost layers. Tensors are
// row-major and contiguous, so these two functions are the only way in and out of such arrays; contiguous memory needs no copy
// (Tensor::over()).

#include <cstdint>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// A new tensor with the elements memory[sum over d of i_d strides[d]], where `memory` points to the first element, on `device`.
// Strides are in elements, one for each dimension; 0 repeats an element, negative ones run backwards. The interior [ny, nx] of
// double u[ny + 2][nx + 2] is from_strided(&u[1][1], {ny, nx}, {nx + 2, 1}, DType::float64).
//
// The tape does not see the array: the result is a variable without a past. On a GPU the host waits until the copy is done.
// Errors: those of Tensor::over(); as many strides as dimensions are needed.
Tensor from_strided(const void* memory, const Shape& shape, const std::vector<std::int64_t>& strides, DType dtype,
                    DeviceKind device = DeviceKind::cpu);

// Writes the elements of x into such an array, which is on the device of x and has its element type; of a distributed tensor this
// rank's block. It leaves the elements between them as they are. On a GPU the host waits until the copy is done. Not recorded.
// Errors: those of from_strided(); strides for which two elements may share a place.
void to_strided(const Tensor& x, void* memory, const std::vector<std::int64_t>& strides);

}  // namespace mpigrad
