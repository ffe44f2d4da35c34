#pragma once
// Padding by copies of elements, in the modes of ops/extents.h; compositions of the functions in ops/views/views.h.

#include "framework/tensor/tensor.h"
#include "ops/extents.h"

namespace mpigrad {

// Adds low[d] elements before and high[d] after along each dimension d, in one mode. At most as many as the dimension has;
// reflect: one less; replicate and zeros: any number. Dimensions that are split over ranks are refused.
Tensor pad(const Tensor& x, const Shape& low, const Shape& high, PaddingMode mode);

namespace local {
// Pads D, H and W of [N, D, H, W, C], each end in its mode, as numpy.pad does. Errors: a negative number; more copies than the
// dimension has elements (reflect: as many as it has).
Tensor pad(const Tensor& x, const Padding& padding);
// The adjoint of pad() as a function of its own: adds every padded element to the element that it is a copy of, and drops zeros.
// [N, D + low + high, ...] -> [N, D, ...].
Tensor unpad(const Tensor& y, const Padding& padding);
}  // namespace local

// One end of one dimension, for pad() and unpad() on tensors of any layout.
struct PaddedEnd {
  int dimension = 0;
  std::int64_t count = 0;
  PaddingMode mode = PaddingMode::zeros;
  bool high = false;
  bool copies() const { return count > 0 && mode != PaddingMode::zeros; }
  // The places [first, second) among n that are copied. Error: there are too few; `x` is named.
  std::pair<std::int64_t, std::int64_t> source(std::int64_t n, const Tensor& x) const;
  // The elements of the end made from `planes`, the elements of source(), and the adjoint of that.
  Tensor from(const Tensor& planes) const;
  Tensor back(const Tensor& end) const;
};
// Both ends of spatial dimension i of [N, D, H, W, C]. Error: a negative number.
std::pair<PaddedEnd, PaddedEnd> ends_of(const Padding& padding, std::size_t i, const Tensor& x);

}  // namespace mpigrad
