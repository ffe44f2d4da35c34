#ifndef MPIGRAD_OPS_ELEMENTWISE_ELEMENTWISE_H
#define MPIGRAD_OPS_ELEMENTWISE_ELEMENTWISE_H
// Functions of corresponding elements. Operands broadcast: shapes are aligned at the right and extents of 1 repeat.
// Types must be equal; floating-point types have derivatives, comparisons give booleans. bfloat16 and float16 are computed in
// float32 and rounded once.
//
// Where a function is not smooth and its argument is NaN, its value is NaN and the cotangent passes: relu, leaky_relu, abs and
// clamp hand it on, maximum and minimum to both operands, and reductions, pooling and scans to the elements that are NaN, those
// over ranks included. So an error shows in the gradients of everything behind it, where a derivative of 0 would keep what is
// there as it was and hide that it has gone wrong. Every kernel follows this, fused ones too: masks are !(y <= 0), not y > 0.
// (PyTorch does so in relu, maximum, minimum, max and max pooling; in leaky_relu it passes slope times the cotangent, in abs and
// clamp nothing.) sign, floor and ceil have no derivative anywhere, and sign(NaN) is NaN.

#include "framework/tensor/tensor.h"

namespace mpigrad {

Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
// Of integers it rounds towards zero; x / 0 is 0, and the lowest number / -1 is itself.
Tensor divide(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  // where a == b the cotangent goes half to each
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, const Tensor& b);  // a > 0 where b is not constant

// scale * x + shift
Tensor affine(const Tensor& x, double scale, double shift);
Tensor pow(const Tensor& x, double exponent);

Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor abs(const Tensor& x);    // derivative 0 at 0
Tensor sign(const Tensor& x);   // derivative 0
Tensor floor(const Tensor& x);  // derivative 0
Tensor ceil(const Tensor& x);   // derivative 0
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor softplus(const Tensor& x);  // log(1 + exp(x)), without overflow
Tensor relu(const Tensor& x);      // derivative 0 at 0
// x < 0 ? slope * x : x;  slope >= 0, so that the sign of the result tells the branch
Tensor leaky_relu(const Tensor& x, double slope);
Tensor clamp(const Tensor& x, double low, double high);  // derivative 1 inside and on the bounds

Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
inline Tensor greater(const Tensor& a, const Tensor& b) { return less(b, a); }
inline Tensor greater_equal(const Tensor& a, const Tensor& b) { return less_equal(b, a); }
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& a);
// condition ? a : b; condition is boolean; all three broadcast
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// Another element type; the cotangent is cast back. Integers carry no derivative.
Tensor cast(const Tensor& x, DType dtype);

inline Tensor negate(const Tensor& x) { return affine(x, -1, 0); }
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator-(const Tensor& x) { return negate(x); }
inline Tensor operator+(const Tensor& x, double c) { return affine(x, 1, c); }
inline Tensor operator+(double c, const Tensor& x) { return affine(x, 1, c); }
inline Tensor operator-(const Tensor& x, double c) { return affine(x, 1, -c); }
inline Tensor operator-(double c, const Tensor& x) { return affine(x, -1, c); }
inline Tensor operator*(const Tensor& x, double c) { return affine(x, c, 0); }
inline Tensor operator*(double c, const Tensor& x) { return affine(x, c, 0); }
Tensor operator/(const Tensor& x, double c);
Tensor operator/(double c, const Tensor& x);

}  // namespace mpigrad

#endif
