#pragma once
// The scalar functions of elementwise ops, one definition for CPU and CUDA kernels. They are called with float, double, integers
// (binary ones) or bool; 16-bit types are widened before and rounded after.

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "framework/base/host_device.h"

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
MPIGRAD_SCALAR(Sin, std::sin(x))
MPIGRAD_SCALAR(Cos, std::cos(x))
MPIGRAD_SCALAR(Tanh, std::tanh(x))
MPIGRAD_SCALAR(Erf, std::erf(x))
MPIGRAD_SCALAR(Softplus, std::max(x, decltype(x)(0)) + std::log1p(std::exp(-std::abs(x))))
struct Sigmoid {
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T x) const {
    const T e = std::exp(-std::abs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
  }
};
struct LeakyRelu {
  double slope = 0;
  // Selections, which vectorise as blends: slope 0 is 0, not 0 * x, which is -0 and at -infinity NaN. NaN stays NaN.
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T x) const {
    const T a = static_cast<T>(slope), below = a == 0 ? T(0) : a * x;
    return x <= 0 ? below : x;
  }
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
  // Of integers: x / 0 is 0, and the lowest number / -1 is itself; the processor would end the program on both.
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
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(std::pow(a, b)); }
};
struct Maximum {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return a > b || a != a ? a : b; }  // NaN, from either side, wins
};
struct Minimum {
  MPIGRAD_HOST_DEVICE auto operator()(auto a, auto b) const { return a < b || a != a ? a : b; }
};
struct LeakyReluAdjoint {
  double slope = 0;
  // Selections, as in LeakyRelu: 0 also for an infinite cotangent. Not b > 0: where b is NaN, a passes.
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T a, T b) const {
    const T s = static_cast<T>(slope), below = s == T(0) ? T(0) : static_cast<T>(s * a);
    return b <= T(0) ? below : a;
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

}  // namespace mpigrad::scalar

// ---- all of them, a row each: the function, the name of the op and of the function that users call, and what it is on a
// distributed tensor (Elementwise, ops/layout_rules.h). Kernels of all devices, ops and plain functions are made of these rows:
//   #define MPIGRAD_MAKE(F, ...) template void Unary<F>::run(Cpu, Inputs, Outputs) const;
//   MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)

// clang-format off
// Without attributes.
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
  X(Sin, sin, nonlinear) \
  X(Cos, cos, nonlinear) \
  X(Tanh, tanh, nonlinear) \
  X(Erf, erf, nonlinear) \
  X(Sigmoid, sigmoid, nonlinear) \
  X(Softplus, softplus, nonlinear)
#define MPIGRAD_UNARY_FUNCTIONS(X) \
  MPIGRAD_PLAIN_FUNCTIONS(X) \
  X(Affine, affine, linear) \
  X(DivideBy, divide, linear) \
  X(DivideNumber, divide, nonlinear) \
  X(PowScalar, pow, nonlinear) \
  X(LeakyRelu, leaky_relu, nonlinear) \
  X(Clamp, clamp, nonlinear)
#define MPIGRAD_BINARY_FUNCTIONS(X) \
  X(Add, add, linear) \
  X(Subtract, subtract, linear) \
  X(Multiply, multiply, product) \
  X(Divide, divide, quotient) \
  X(Pow, pow, nonlinear) \
  X(Maximum, maximum, nonlinear) \
  X(Minimum, minimum, nonlinear) \
  X(LeakyReluAdjoint, leaky_relu_adjoint, product)
#define MPIGRAD_COMPARE_FUNCTIONS(X) \
  X(Equal, equal, nonlinear) \
  X(NotEqual, not_equal, nonlinear) \
  X(Less, less, nonlinear) \
  X(LessEqual, less_equal, nonlinear) \
  X(LogicalAnd, logical_and, nonlinear) \
  X(LogicalOr, logical_or, nonlinear)
// clang-format on
