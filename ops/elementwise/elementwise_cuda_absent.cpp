// Elementwise ops without CUDA.

#include "ops/elementwise/elementwise_ops.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/absent.h"

namespace mpigrad::ops {

// Lists of macros that end without semicolons.
// clang-format off
template <class F> MPIGRAD_ABSENT(Unary<F>)
template <class F> MPIGRAD_ABSENT(Binary<F>)
template <class F> MPIGRAD_ABSENT(Compare<F>)
#define MPIGRAD_MAKE(F, ...) template void Unary<F>::run(Cuda, Inputs, Outputs) const;
MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F, ...) template void Binary<F>::run(Cuda, Inputs, Outputs) const;
MPIGRAD_BINARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F, ...) template void Compare<F>::run(Cuda, Inputs, Outputs) const;
MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

MPIGRAD_ABSENT(Where)
MPIGRAD_ABSENT(Cast)
// clang-format on

}  // namespace mpigrad::ops
