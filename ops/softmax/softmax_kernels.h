#pragma once
// Softmax on the CPU as functions of shapes and pointers.
// They use no tensors and no tapes. Included inside ops, by kernel tests and by benchmarks only.

#include <cstdint>

#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

// x, y: [rows, n], softmax over each row. Ops permute if the axis is not the last one.
template <class T>
void softmax(std::int64_t rows, std::int64_t n, const T* x, T* y);
template <class T>
void log_softmax(std::int64_t rows, std::int64_t n, const T* x, T* y);

}  // namespace mpigrad::cpu
