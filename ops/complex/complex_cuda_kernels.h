#pragma once
// Kernels of complex numbers on a GPU; F is a function of ops/complex/complex_functions.h.

#include <cstdint>

#include "framework/tensor/strided.h"
#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

// y[i] = f(a[i])
template <class F, class A, class R>
void map_complex(const F& f, std::int64_t n, const A* a, R* y, Stream stream);
// y = f(a, b); arrays of the walk: a, b; y is contiguous.
template <class F, class A, class B, class R>
void map_complex(const F& f, const StridedWalk<2>& walk, std::int64_t n, const A* a, const B* b, R* y, Stream stream);

}  // namespace mpigrad::cuda
