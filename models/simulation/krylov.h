#pragma once
// Iterative solvers outside of the tape, for solve() (implicit.h).

#include "models/simulation/implicit.h"

namespace mpigrad::detail {

// Solves A u = b as `options` say; A(x) must have the type and layout of b. Errors as for solve().
Tensor krylov(const TensorMap& A, const Tensor& b, const SolveOptions& options, SolveReport& report);

}  // namespace mpigrad::detail
