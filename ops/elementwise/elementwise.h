#ifndef MPIGRAD_OPS_ELEMENTWISE_ELEMENTWISE_H
#define MPIGRAD_OPS_ELEMENTWISE_ELEMENTWISE_H
// Functions of corresponding elements. Operands broadcast: shapes are aligned at the right and extents of 1 repeat.
// Types are equal or promoted by result_type() (framework/tensor/dtype.h), or float32 variables are rounded to a 16-bit type (see
// below); floating-point types have derivatives, comparisons give booleans. Complex tensors are operands of add, subtract,
// multiply, divide, affine (the shift is real), square, abs (real) and cast (not to real types). bfloat16 and float16 are
// computed in float32 and rounded once.
//
// At NaN the value of a function that is not smooth is NaN, and the cotangent goes
//
//   relu, leaky_relu, abs, clamp                    to the argument
//   maximum, minimum                                to both operands
//   reductions, pooling, scans, also over ranks     to the elements that are NaN
//
// An error thus shows in the gradients of all earlier ops, where a derivative of 0 would hide it.
// Every kernel follows this, fused ones too: masks are !(y <= 0), not y > 0. (PyTorch does so in relu, maximum, minimum, max and
// max pooling; in leaky_relu it passes slope times the cotangent, in abs and clamp nothing.) sign, floor, ceil, round, trunc and
// floor_divide have derivative 0 everywhere, also at NaN; sign(NaN) is NaN.

#include "framework/tensor/tensor.h"
#include "ops/elementwise/number.h"

namespace mpigrad {

// Functions of two tensors. Errors of all of them: shapes that do not broadcast, types without a common type, layouts that
// do not fit. A float32 variable with dimensions is rounded to the type of a bfloat16 or float16 operand (mixed precision).
Tensor add(const Tensor& a, const Tensor& b);       // a + b
Tensor subtract(const Tensor& a, const Tensor& b);  // a - b
Tensor multiply(const Tensor& a, const Tensor& b);  // a b
// Integer division rounds towards zero; x / 0 is 0, and the lowest number / -1 is itself.
Tensor divide(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  // where a == b the cotangent goes half to each
Tensor minimum(const Tensor& a, const Tensor& b);
// a > 0 where b is not constant. Integers: exact modulo 2^bits; a^-n is 1 / a^n, rounded towards zero, and 0 for a = 0.
Tensor pow(const Tensor& a, const Tensor& b);
// a - floor(a / b) b, with the sign of b; 0 for integers where b is 0.
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, const Tensor& b);  // floor(a / b), derivative 0; 0 for integers where b is 0

// scale * x + shift
Tensor affine(const Tensor& x, double scale, double shift);

// Functions of one tensor, with the shape and type of x, as in the C++ library: angles in radians, NaN outside the domain. Error:
// integers and booleans, except for abs, sign, square, floor, ceil, trunc and round; abs and sign refuse booleans.
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);  // exp(x) - 1, without cancellation for small x
Tensor log(const Tensor& x);    // natural
Tensor log1p(const Tensor& x);  // log(1 + x), without cancellation for small x
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);      // x^2
Tensor reciprocal(const Tensor& x);  // 1 / x
Tensor abs(const Tensor& x);         // derivative 0 at 0
Tensor sign(const Tensor& x);        // derivative 0
Tensor floor(const Tensor& x);       // derivative 0
Tensor ceil(const Tensor& x);        // derivative 0
Tensor trunc(const Tensor& x);       // towards zero; derivative 0
Tensor round(const Tensor& x);       // to the nearest, ties to even; derivative 0
Tensor exp2(const Tensor& x);        // 2^x
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor rsqrt(const Tensor& x);  // 1 / sqrt(x)
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);  // from -pi/2 to pi/2
Tensor acos(const Tensor& x);  // from 0 to pi
Tensor atan(const Tensor& x);  // from -pi/2 to pi/2
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor erf(const Tensor& x);                   // 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x
Tensor erfc(const Tensor& x);                  // 1 - erf(x), without cancellation for large x
Tensor erfinv(const Tensor& x);                // y with erf(y) = x; infinite at -1 and 1
Tensor lgamma(const Tensor& x);                // log |Gamma(x)|
Tensor polygamma(int order, const Tensor& x);  // derivative of order `order` of digamma; NaN for orders above 1 below -1e4
inline Tensor digamma(const Tensor& x) { return polygamma(0, x); }  // derivative of log |Gamma(x)|
// ---- floating-point operands
Tensor atan2(const Tensor& y, const Tensor& x);
Tensor hypot(const Tensor& a, const Tensor& b);      // sqrt(a^2 + b^2) without overflow; derivative NaN where both are 0
Tensor copysign(const Tensor& a, const Tensor& b);   // |a| with the sign of b
Tensor nextafter(const Tensor& a, const Tensor& b);  // next number from a towards b; float32 and float64; cotangent to a
Tensor logaddexp(const Tensor& a, const Tensor& b);  // log(e^a + e^b) without overflow
// Boolean results; no integer is infinite or NaN.
Mask isnan(const Tensor& x);
Mask isinf(const Tensor& x);
Mask isfinite(const Tensor& x);
Mask signbit(const Tensor& x);  // true for -0 too
// ---- integers and booleans; shifts: integers only, by 0 bits or more
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_invert(const Tensor& x);
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);  // arithmetic shift: copies of the sign come in from the left
// ---- floating-point numbers: activations
Tensor sigmoid(const Tensor& x);
Tensor softplus(const Tensor& x);  // log(1 + exp(x)), without overflow
Tensor relu(const Tensor& x);      // derivative 0 at 0
// x < 0 ? slope * x : x;  slope >= 0, so that the sign of the result tells the branch
Tensor leaky_relu(const Tensor& x, double slope);  // more activations: ops/elementwise/activation.h

// Comparisons of corresponding elements, without derivatives. Comparisons with NaN are false, except not_equal(), which is true.
// Errors: those of functions of two tensors.
Mask equal(const Tensor& a, const Tensor& b);
Mask not_equal(const Tensor& a, const Tensor& b);
Mask less(const Tensor& a, const Tensor& b);
Mask less_equal(const Tensor& a, const Tensor& b);
inline Mask greater(const Tensor& a, const Tensor& b) { return less(b, a); }
inline Mask greater_equal(const Tensor& a, const Tensor& b) { return less_equal(b, a); }
// Numbers are operands, too: 0 is false, all other numbers and NaN are true.
Mask logical_and(const Tensor& a, const Tensor& b);
Mask logical_or(const Tensor& a, const Tensor& b);
Mask logical_xor(const Tensor& a, const Tensor& b);
Mask logical_not(const Tensor& a);
// condition ? a : b; condition is boolean; all three broadcast
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// Converts to another element type; the cotangent is cast back. Integers carry no derivative.
Tensor cast(const Tensor& x, DType dtype);

// -x; 0 of a floating-point type becomes -0. Error: booleans.
Tensor negate(const Tensor& x);

}  // namespace mpigrad

#endif
