#pragma once
// Derivatives of fields in space, by central finite differences on periodic boxes.
//
// Fields are [N, D, H, W, C] with the periodic dimensions D, H and W, plain or split over ranks in any way. Values and gradients
// have the same bits on any number of ranks: the adjoint of a stencil is the stencil with its weights in reverse order.

#include <array>
#include <vector>

#include "framework/engine/op.h"

namespace mpigrad::fields {

struct DifferenceOptions {
  std::array<double, 3> spacing = {1, 1, 1};  // of the points along D, H and W
  int order = 2;                              // of the error in the spacing: 2, 4, 6 or 8
};

// y[i] = sum over j of weights[j] x[i + j - m] along a dimension of any tensor, periodically; there are 2 m + 1 weights. The
// cotangent of x is the stencil of the reversed weights; each rank receives m planes from either side. Errors: an even number of
// weights; an extent of fewer than m planes; a partial sum.
Tensor stencil(const Tensor& x, const std::vector<double>& weights, int axis);

// [N, D, H, W, C] -> [N, D, H, W, 3 C]: channel d C + c is the derivative of channel c along D (d = 0), H (1) or W (2). It is 0
// along a dimension of extent 1. An extent must be 1 or at least order / 2.
Tensor gradient(const Tensor& x, const DifferenceOptions& options = {});
// [N, D, H, W, 3 C] -> [N, D, H, W, C]: the sum of the derivatives of channel c along D, C + c along H and 2 C + c along W; the
// transpose of -gradient.
Tensor divergence(const Tensor& x, const DifferenceOptions& options = {});
// The sum of the second derivatives of each channel; symmetric. It has order / 2 points on either side: divergence(gradient(x))
// has twice as many.
Tensor laplacian(const Tensor& x, const DifferenceOptions& options = {});

// The weights of these differences for unit spacing, at -m ... m with m = order / 2, of the first or second derivative
// (B. Fornberg, Math. Comp. 51, 1988). Errors: another order or derivative.
std::vector<double> difference_weights(int derivative, int order);

}  // namespace mpigrad::fields
