#ifndef MPIGRAD_OPS_COMPLEX_COMPLEX_OPERANDS_H
#define MPIGRAD_OPS_COMPLEX_COMPLEX_OPERANDS_H
// Parts and views of complex tensors, and what functions of real tensors call for complex operands. Includes no other op, so that
// all may include it.

#include "framework/tensor/tensor.h"

namespace mpigrad {

// z [...] as real numbers [..., 2]: real and imaginary parts. No copy.
Tensor view_as_real(const Tensor& z);
// x [..., 2], float32 or float64, as complex numbers [...]. No copy, unless the memory of x is not aligned for complex numbers.
// Error: another last extent; a last dimension that is split.
Tensor view_as_complex(const Tensor& x);

// The real part, the imaginary part and the conjugate. A real x: x, zeros and x.
Tensor real(const Tensor& z);
Tensor imag(const Tensor& z);
Tensor conj(const Tensor& z);

namespace detail {

// Functions of ops/elementwise/, ops/reduce/ and ops/linear/ where an operand is complex.
inline bool any_complex(const Tensor& a, const Tensor& b) { return is_complex(a.dtype()) || is_complex(b.dtype()); }
Tensor add_complex(const Tensor& a, const Tensor& b, bool subtract);
Tensor multiply_complex(const Tensor& a, const Tensor& b);
Tensor divide_complex(const Tensor& a, const Tensor& b);
Tensor affine_complex(const Tensor& z, double scale, double shift);
Tensor abs_complex(const Tensor& z);
// To a complex type, also from real types. Error: from a complex type to a real one.
Tensor cast_complex(const Tensor& x, DType dtype);
// a[..., m, k] b[..., k, n]; one operand may be real.
Tensor matmul_complex(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b);

}  // namespace detail

}  // namespace mpigrad

#endif
