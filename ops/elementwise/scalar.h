#pragma once
// Scalar functions of elementwise ops, one definition for CPU and CUDA kernels. Arguments are float, double, integers (binary
// functions) or bool; 16-bit types are widened before and rounded after. Scalar functions of activations are in
// activation_functions.h.

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "framework/base/host_device.h"
#include "ops/elementwise/activation_functions.h"
#include "ops/elementwise/special.h"

namespace mpigrad::scalar {

// ---- unary

#define MPIGRAD_SCALAR(Type, expression)                                     \
  struct Type {                                                              \
    MPIGRAD_HOST_DEVICE auto operator()(auto x) const { return expression; } \
  };

struct Affine {
  double a = 1, b = 0;
  MPIGRAD_HOST_DEVICE auto operator()(auto x) const { return static_cast<decltype(x)>(a) * x + static_cast<decltype(x)>(b); }
};
struct DivideBy {
  double c = 1;
  MPIGRAD_HOST_DEVICE auto operator()(auto x) const { return x / static_cast<decltype(x)>(c); }
};
struct DivideNumber {
  double c = 1;
  MPIGRAD_HOST_DEVICE auto operator()(auto x) const { return static_cast<decltype(x)>(c) / x; }
};
struct PowScalar {
  double p = 1;
  MPIGRAD_HOST_DEVICE auto operator()(auto x) const { return std::pow(x, static_cast<decltype(x)>(p)); }
};
MPIGRAD_SCALAR(Exp, std::exp(x))
MPIGRAD_SCALAR(Expm1, std::expm1(x))
MPIGRAD_SCALAR(Log, std::log(x))
MPIGRAD_SCALAR(Log1p, std::log1p(x))
MPIGRAD_SCALAR(Sqrt, std::sqrt(x))
MPIGRAD_SCALAR(Square, x* x)
MPIGRAD_SCALAR(Reciprocal, decltype(x)(1) / x)
MPIGRAD_SCALAR(Abs, std::abs(x))
MPIGRAD_SCALAR(Sign, x != x ? x : decltype(x)((decltype(x)(0) < x) - (x < decltype(x)(0))))
MPIGRAD_SCALAR(Floor, std::floor(x))
MPIGRAD_SCALAR(Ceil, std::ceil(x))
MPIGRAD_SCALAR(Round, std::nearbyint(x))
MPIGRAD_SCALAR(Trunc, std::trunc(x))
MPIGRAD_SCALAR(Exp2, std::exp2(x))
MPIGRAD_SCALAR(Log2, std::log2(x))
MPIGRAD_SCALAR(Log10, std::log10(x))
MPIGRAD_SCALAR(Rsqrt, decltype(x)(1) / std::sqrt(x))
MPIGRAD_SCALAR(Sin, std::sin(x))
MPIGRAD_SCALAR(Cos, std::cos(x))
MPIGRAD_SCALAR(Tan, std::tan(x))
MPIGRAD_SCALAR(Asin, std::asin(x))
MPIGRAD_SCALAR(Acos, std::acos(x))
MPIGRAD_SCALAR(Atan, std::atan(x))
MPIGRAD_SCALAR(Sinh, std::sinh(x))
MPIGRAD_SCALAR(Cosh, std::cosh(x))
MPIGRAD_SCALAR(Asinh, std::asinh(x))
MPIGRAD_SCALAR(Acosh, std::acosh(x))
MPIGRAD_SCALAR(Atanh, std::atanh(x))
MPIGRAD_SCALAR(Erf, std::erf(x))
MPIGRAD_SCALAR(Erfc, std::erfc(x))
MPIGRAD_SCALAR(Erfinv, static_cast<decltype(x)>(special::erfinv(x)))
MPIGRAD_SCALAR(Lgamma, special::lgamma(x))
struct Polygamma {
  int order = 0;  // 0 is digamma
  MPIGRAD_HOST_DEVICE auto operator()(auto x) const { return static_cast<decltype(x)>(special::polygamma(order, x)); }
};
struct Clamp {
  double low = 0, high = 0;
  MPIGRAD_HOST_DEVICE auto operator()(auto x) const {
    return std::min(std::max(x, static_cast<decltype(x)>(low)), static_cast<decltype(x)>(high));
  }
};

#undef MPIGRAD_SCALAR

// ---- binary

struct Add {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(a + b); }
};
struct Subtract {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(a - b); }
};
struct Multiply {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(a * b); }
};
struct Divide {
  // Integers: x / 0 is 0, and the lowest number / -1 is itself; the processor would abort the program on both.
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>)
        if (b == T(-1)) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
      return static_cast<T>(a / b);
    } else {
      return a / b;
    }
  }
};
struct Pow {
  // Integers: exact modulo 2^bits; a^-n is 1 / a^n, rounded towards zero, and 0 for a = 0.
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) return a || !b;
    else if constexpr (std::is_integral_v<T>) return special::power(a, b);
    else return static_cast<T>(std::pow(a, b));
  }
};
struct Maximum {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return a > b || a != a ? a : b; }  // NaN wins, from either side
};
struct Minimum {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return a < b || a != a ? a : b; }
};
// Nonzero results have the sign of b. Integers: x / 0 is 0, and x mod 0 is 0.
struct Remainder {
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == T(0) || (special::negative(b) && b == T(-1))) return T(0);
      const T r = static_cast<T>(a % b);
      return r != T(0) && special::negative(r) != special::negative(b) ? static_cast<T>(r + b) : r;
    } else {
      const T r = std::fmod(a, b);
      if (r == T(0)) return std::copysign(r, b);
      return (r < T(0)) != (b < T(0)) ? r + b : r;
    }
  }
};
struct FloorDivide {
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      const T q = Divide{}(a, b);
      if (b == T(0) || special::negative(a) == special::negative(b) || b == T(-1)) return q;
      return a % b != T(0) ? static_cast<T>(q - T(1)) : q;
    } else {
      const T r = std::fmod(a, b), q = (a - r) / b, whole = std::floor(q);
      if (b == T(0)) return a / b;
      const T floor = q - whole > T(0.5) ? whole + T(1) : whole;
      const T result = r != T(0) && (r < T(0)) != (b < T(0)) ? floor - T(1) : floor;
      return result == T(0) ? std::copysign(result, a / b) : result;
    }
  }
};

// ---- binary, floating-point numbers

struct Atan2 {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return std::atan2(a, b); }
};
struct Hypot {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return std::hypot(a, b); }
};
struct Copysign {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return std::copysign(a, b); }
};
struct Nextafter {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return std::nextafter(a, b); }
};
struct Logaddexp {
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T a, T b) const {
    const T high = a > b || a != a ? a : b;
    return a == b ? high + T(0.693147180559945309417) : high + std::log1p(std::exp(-std::abs(a - b)));
  }
};

// ---- binary, integers and booleans

struct BitwiseAnd {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(a & b); }
};
struct BitwiseOr {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(a | b); }
};
struct BitwiseXor {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(a ^ b); }
};
// Shifts by b bits, 0 <= b. If b is at least the number of bits, none of them remains; copies of the sign come in from the left.
struct LeftShift {
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T a, T b) const {
    return special::negative(b) || b >= T(8 * sizeof(T)) ? T(0) : static_cast<T>(static_cast<std::uint64_t>(a) << b);
  }
};
struct RightShift {
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T a, T b) const {
    if (special::negative(b) || b >= T(8 * sizeof(T))) return special::negative(a) ? T(-1) : T(0);
    return static_cast<T>(a >> b);
  }
};

// ---- comparisons

struct Equal {
  MPIGRAD_HOST_DEVICE bool operator()(auto a, auto b) const { return a == b; }
};
struct NotEqual {
  MPIGRAD_HOST_DEVICE bool operator()(auto a, auto b) const { return a != b; }
};
struct Less {
  MPIGRAD_HOST_DEVICE bool operator()(auto a, auto b) const { return a < b; }
};
struct LessEqual {
  MPIGRAD_HOST_DEVICE bool operator()(auto a, auto b) const { return a <= b; }
};
struct LogicalAnd {
  MPIGRAD_HOST_DEVICE bool operator()(auto a, auto b) const { return a != decltype(a)(0) && b != decltype(b)(0); }
};
struct LogicalOr {
  MPIGRAD_HOST_DEVICE bool operator()(auto a, auto b) const { return a != decltype(a)(0) || b != decltype(b)(0); }
};
struct LogicalXor {
  MPIGRAD_HOST_DEVICE bool operator()(auto a, auto b) const { return (a != decltype(a)(0)) != (b != decltype(b)(0)); }
};

}  // namespace mpigrad::scalar

// ---- tables with one row per function: its struct, the name of the op and of the public function, and its kind on distributed
// tensors (Elementwise, ops/layout_rules.h). The kernels of all devices, ops and public functions are generated from these rows:
//   #define MPIGRAD_MAKE(F, ...) template void Unary<F>::run(Cpu, Inputs, Outputs) const;
//   MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)

// clang-format off
// Functions without attributes.
#define MPIGRAD_PLAIN_FUNCTIONS(X) \
  X(Exp, exp, nonlinear) \
  X(Expm1, expm1, nonlinear) \
  X(Log, log, nonlinear) \
  X(Log1p, log1p, nonlinear) \
  X(Sqrt, sqrt, nonlinear) \
  X(Square, square, nonlinear) \
  X(Reciprocal, reciprocal, nonlinear) \
  X(Abs, abs, nonlinear) \
  X(Sign, sign, nonlinear) \
  X(Floor, floor, nonlinear) \
  X(Ceil, ceil, nonlinear) \
  X(Round, round, nonlinear) \
  X(Trunc, trunc, nonlinear) \
  X(Exp2, exp2, nonlinear) \
  X(Log2, log2, nonlinear) \
  X(Log10, log10, nonlinear) \
  X(Rsqrt, rsqrt, nonlinear) \
  X(Sin, sin, nonlinear) \
  X(Cos, cos, nonlinear) \
  X(Tan, tan, nonlinear) \
  X(Asin, asin, nonlinear) \
  X(Acos, acos, nonlinear) \
  X(Atan, atan, nonlinear) \
  X(Sinh, sinh, nonlinear) \
  X(Cosh, cosh, nonlinear) \
  X(Asinh, asinh, nonlinear) \
  X(Acosh, acosh, nonlinear) \
  X(Atanh, atanh, nonlinear) \
  X(Erf, erf, nonlinear) \
  X(Erfc, erfc, nonlinear) \
  X(Erfinv, erfinv, nonlinear) \
  X(Lgamma, lgamma, nonlinear) \
  MPIGRAD_COMPOSED_ACTIVATIONS(MPIGRAD_ROW_OF_FUNCTION, X)
#define MPIGRAD_UNARY_FUNCTIONS(X) \
  MPIGRAD_PLAIN_FUNCTIONS(X) \
  X(Affine, affine, linear) \
  X(DivideBy, divide, linear) \
  X(DivideNumber, divide, nonlinear) \
  X(PowScalar, pow, nonlinear) \
  X(Polygamma, polygamma, nonlinear) \
  X(LeakyRelu, leaky_relu, nonlinear) \
  X(Clamp, clamp, nonlinear) \
  MPIGRAD_DERIVED_ACTIVATIONS(MPIGRAD_ROW_OF_FUNCTION, X)
// For every element type that is computed with.
#define MPIGRAD_ARITHMETIC_FUNCTIONS(X) \
  X(Add, add, linear) \
  X(Subtract, subtract, linear) \
  X(Multiply, multiply, product) \
  X(Divide, divide, quotient) \
  X(Pow, pow, nonlinear) \
  X(Maximum, maximum, nonlinear) \
  X(Minimum, minimum, nonlinear) \
  X(Remainder, remainder, nonlinear) \
  X(FloorDivide, floor_divide, nonlinear) \
  X(LeakyReluAdjoint, leaky_relu_adjoint, product)
// For floating-point operands of equal shape.
#define MPIGRAD_ADJOINT_FUNCTIONS(X) MPIGRAD_DERIVED_ACTIVATIONS(MPIGRAD_ROW_OF_ADJOINT, X)
#define MPIGRAD_FLOATING_FUNCTIONS(X) \
  X(Atan2, atan2, nonlinear) \
  X(Hypot, hypot, nonlinear) \
  X(Copysign, copysign, nonlinear) \
  X(Nextafter, nextafter, nonlinear) \
  X(Logaddexp, logaddexp, nonlinear)
#define MPIGRAD_INTEGRAL_FUNCTIONS(X) \
  X(BitwiseAnd, bitwise_and, nonlinear) \
  X(BitwiseOr, bitwise_or, nonlinear) \
  X(BitwiseXor, bitwise_xor, nonlinear) \
  X(LeftShift, bitwise_left_shift, nonlinear) \
  X(RightShift, bitwise_right_shift, nonlinear)
#define MPIGRAD_BINARY_FUNCTIONS(X) \
  MPIGRAD_ARITHMETIC_FUNCTIONS(X) \
  MPIGRAD_FLOATING_FUNCTIONS(X) \
  MPIGRAD_INTEGRAL_FUNCTIONS(X) \
  MPIGRAD_ADJOINT_FUNCTIONS(X)
#define MPIGRAD_COMPARE_FUNCTIONS(X) \
  X(Equal, equal, nonlinear) \
  X(NotEqual, not_equal, nonlinear) \
  X(Less, less, nonlinear) \
  X(LessEqual, less_equal, nonlinear) \
  X(LogicalAnd, logical_and, nonlinear) \
  X(LogicalOr, logical_or, nonlinear) \
  X(LogicalXor, logical_xor, nonlinear)
// clang-format on
