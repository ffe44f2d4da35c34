#pragma once
// Launches of the kernels of ops/softmax/logsumexp.h; T is float or double.

#include <cstdint>

#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

// x: [before, n, behind] -> y: [before, behind]; sums in double.
template <class T>
void log_sum_exp(std::int64_t before, std::int64_t n, std::int64_t behind, const T* x, T* y, Stream stream);
// y = exp(x - a) b: x [rows, columns]; a, b: one number per row, or one per column.
template <class T>
void exp_scaled(std::int64_t rows, std::int64_t columns, bool of_rows, const T* x, const T* a, const T* b, T* y, Stream stream);

}  // namespace mpigrad::cuda
