#pragma once
// Softmax of rows on a GPU: x, y: [rows, n]; sums in double, shifted by the maximum of the row.
// They use no tensors and no tapes; included inside ops only. T is any floating-point type of the library unless said otherwise;
// 16-bit types are computed in float32 and rounded once. All results are the same in every run: sums have a fixed order and
// nothing is added atomically.

#include <cstdint>

#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

template <class T>
void softmax(std::int64_t rows, std::int64_t n, const T* x, T* y, bool logarithm, Stream stream);

}  // namespace mpigrad::cuda
