#pragma once
// Products of matrices on the CPU as functions of shapes and pointers.
// They know no tensors and no tapes. Included inside ops, by kernel tests and by benchmarks only.
//
// Namespace `reference` has plain loops, for float and double, which decide what is right; without a namespace a library's
// function is taken where there is a faster one, which must agree.

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
