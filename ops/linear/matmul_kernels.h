#pragma once
// Matrix products on the CPU as functions of shapes and pointers.
// They use no tensors and no tapes. Included inside ops, by kernel tests and by benchmarks only.
//
// Namespace `reference` has plain loops for float and double, which define the correct results. Functions outside it call a
// library where that is faster, and must agree with them.

#include <cstdint>

#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

template <class T>
void matmul(const MatmulProblem&, const T* a, const T* b, T* c, const Epilogue& = {});  // bias [n]

namespace reference {
template <class T>
void matmul(const MatmulProblem&, const T* a, const T* b, T* c, const Epilogue& = {});
}  // namespace reference

}  // namespace mpigrad::cpu
