#pragma once
// Elementwise kernels of a GPU as functions of shapes, pointers and a stream; F is a function of ops/elementwise/scalar.h.
// They use no tensors and no tapes; included inside ops only. T is any floating-point type of the library unless said otherwise;
// 16-bit types are computed in float32 and rounded once. All results are the same in every run: sums have a fixed order and
// nothing is added atomically.

#include <cstdint>

#include "framework/tensor/strided.h"
#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

template <class F, class T>
void unary(const F& f, std::int64_t n, const T* x, T* y, Stream stream);
// Operands of equal shape.
template <class F, class T>
void binary(const F& f, std::int64_t n, const T* a, const T* b, T* y, Stream stream);
// Arrays of the walk: a, b; y is contiguous. T also integers and booleans.
template <class F, class T>
void binary_strided(const F& f, const StridedWalk<2>& walk, std::int64_t n, const T* a, const T* b, T* y, Stream stream);
template <class F, class T>
void compare(const F& f, const StridedWalk<2>& walk, std::int64_t n, const T* a, const T* b, bool* y, Stream stream);
// y = c ? a : b; T an unsigned integer as wide as the elements; arrays of the walk: c, a, b.
template <class T>
void where(const StridedWalk<3>& walk, std::int64_t n, const bool* c, const T* a, const T* b, T* y, Stream stream);
template <class From, class To>
void cast(std::int64_t n, const From* x, To* y, Stream stream);

}  // namespace mpigrad::cuda
