#pragma once
// Padding of volumes by copies of their own elements, for periodic boxes and mirrors, on any process grid.

#include "comm/distributed/grid.h"
#include "ops/array/padding.h"

namespace mpigrad {

// local::pad() of a plain or distributed [N, D, H, W, C]. Along a split dimension the first and the last rank that have elements
// get those of the ends, from the ranks that have their originals, in one exchange; cotangents go back there. A convolution of
// the result without padding lies on the same ranks as one of x with zeros.
Tensor pad(const Tensor& x, const Padding& padding);

namespace spatial {

// Pads x at the ends of `padding` that add copies, and leaves the other ends in `padding`.
Tensor with_copies(const Tensor& x, Padding& padding);
// local::unpad(), the adjoint of pad(): y as from a transposed convolution without padding, the result split as in `layout`,
// which has its extents; null for a plain y.
Tensor unpad(const Tensor& y, const Padding& padding, const LayoutPtr& layout);

}  // namespace spatial
}  // namespace mpigrad
