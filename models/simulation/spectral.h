#pragma once
// Derivatives of Fourier series; fields.h uses them.

#include "framework/tensor/tensor.h"
#include "models/simulation/differences.h"

namespace mpigrad::fields::detail {

// The first derivative along spatial dimension d, of an extent above 1.
Tensor spectral_derivative(const Tensor& x, std::size_t d, double spacing, Boundary boundary);

// The Laplacian of x, or its (pseudo)inverse: transforms along D, H and W, a product with the eigenvalues of the stencils or
// their reciprocals, and the transforms back. `op` is named in errors.
Tensor by_eigenvalues(const char* op, const Tensor& x, const DifferenceOptions& options, bool inverse);

}  // namespace mpigrad::fields::detail
