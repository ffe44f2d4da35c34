#pragma once
// Derivatives of fields in space and Poisson's equation, by central finite differences or spectrally, on periodic boxes and
// between walls.
//
// Fields are [N, D, H, W, C] with the dimensions D, H and W, plain or split over ranks in any way. Values and gradients have the
// same bits on any number of ranks. A spectral function and poisson() redistribute split dimensions as fft() does
// (comm/fft/fft.h), and return the layout of their argument.

#include <vector>

#include "framework/engine/op.h"
#include "models/simulation/differences.h"

namespace mpigrad::fields {

// y[i] = sum over j of weights[j] x[i + j - m] along a dimension of any tensor; there are 2 m + 1 weights. The cotangent of x is
// the stencil of the reversed weights. Each rank receives m planes from either side. Errors: an even number of weights; between
// walls, weights that are neither symmetric nor antisymmetric; an extent of fewer than m planes; a partial sum.
Tensor stencil(const Tensor& x, const std::vector<double>& weights, int axis, Boundary boundary = Boundary::periodic);

// [N, D, H, W, C] -> [N, D, H, W, 3 C]: channel d C + c is the derivative of channel c along D (d = 0), H (1) or W (2). It is 0
// along a dimension of extent 1. Another extent must be at least order / 2. The spectral derivative of the wave with the
// alternating values 1, -1, 1, ... is 0. Error: split channels, in divergence(), too.
Tensor gradient(const Tensor& x, const DifferenceOptions& options = {});
// [N, D, H, W, 3 C] -> [N, D, H, W, C]: the sum of the derivatives of channel c along D, C + c along H and 2 C + c along W; the
// transpose of -gradient with the same options. So the boundary is that of the field of which x is a gradient: between Neumann
// walls the component across a wall is odd, no flux passes; between Dirichlet walls it is even.
Tensor divergence(const Tensor& x, const DifferenceOptions& options = {});
// The sum of the second derivatives of each channel; symmetric. It has order / 2 points on either side: divergence(gradient(x))
// has twice as many.
Tensor laplacian(const Tensor& x, const DifferenceOptions& options = {});

// The solution u of laplacian(u, options) = rhs, by Fourier transforms along periodic dimensions, and sine and cosine transforms
// (comm/fft/cosines.h) between walls. Without Dirichlet walls the Laplacian is singular: each channel of each sample of `rhs` is
// taken without its mean, u has the mean 0, and so have the cotangents. A dimension of extent 1 has no derivatives, whatever its
// boundary. Linear and symmetric; derivatives of any order. -poisson() is a preconditioner for solve() of implicit.h. Errors:
// types other than float32 and float64; those of fft().
Tensor poisson(const Tensor& rhs, const DifferenceOptions& options = {});

}  // namespace mpigrad::fields
