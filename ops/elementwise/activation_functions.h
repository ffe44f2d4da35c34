#ifndef MPIGRAD_OPS_ELEMENTWISE_ACTIVATION_FUNCTIONS_H
#define MPIGRAD_OPS_ELEMENTWISE_ACTIVATION_FUNCTIONS_H
// Scalar functions of activations, one definition for CPU and CUDA kernels, as in ops/elementwise/scalar.h. A new activation
// needs a struct and a row in this file; see ops/adding.md.

#include <algorithm>
#include <cmath>

#include "framework/base/host_device.h"

namespace mpigrad::scalar {

// The activation that kernels of convolutions, products, norms and pooling compute in their own pass: y < 0 ? factor y : y.
// Factor 1 is no activation, 0 is ReLU, any other is LeakyReLU.
template <class S>
struct FusedOf {
  S factor = 1;
  MPIGRAD_HOST_DEVICE constexpr bool is_none() const { return factor == S(1); }
  MPIGRAD_HOST_DEVICE constexpr bool is_relu() const { return factor == S(0); }
  // The value for y < 0. ReLU gives +0: 0 * y would be -0, and NaN for y = -infinity.
  MPIGRAD_HOST_DEVICE constexpr S below(S y) const { return is_relu() ? S(0) : factor * y; }
  template <class T>
  constexpr FusedOf<T> as() const {
    return {static_cast<T>(factor)};
  }
  bool operator==(const FusedOf&) const = default;
};
using Fused = FusedOf<double>;

struct LeakyRelu {
  Fused fused{0};
  // Selections, which vectorise as blends. Factor 0 gives 0; 0 * x would be -0, and NaN for x = -infinity. NaN stays NaN.
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T x) const {
    const T a = static_cast<T>(fused.factor), below = a == 0 ? T(0) : a * x;
    return x <= 0 ? below : x;
  }
};
// Function of the cotangent a and the result b of LeakyRelu.
struct LeakyReluAdjoint {
  Fused fused{0};
  // Selections, as in LeakyRelu: 0 also for an infinite cotangent. The test is not b > 0: where b is NaN, a passes.
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T a, T b) const {
    const T s = static_cast<T>(fused.factor), below = s == T(0) ? T(0) : static_cast<T>(s * a);
    return b <= T(0) ? below : a;
  }
};

// ---- functions whose derivatives are compositions of ops (ops/elementwise/elementwise_ops.h)

struct Tanh {
  MPIGRAD_HOST_DEVICE auto operator()(auto x) const { return std::tanh(x); }
};
struct Sigmoid {
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T x) const {
    const T e = std::exp(-std::abs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
  }
};
struct Softplus {
  MPIGRAD_HOST_DEVICE auto operator()(auto x) const { return std::max(x, decltype(x)(0)) + std::log1p(std::exp(-std::abs(x))); }
};

// ---- functions with their first derivative, for numbers, and their second derivative, for tensors in differentiable ops, from
// which all higher derivatives follow

struct Elu {  // x > 0 ? x : alpha (exp(x) - 1)
  double alpha = 1;
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T x) const {
    return x > 0 ? x : static_cast<T>(alpha) * std::expm1(x);
  }
  template <class T>
  MPIGRAD_HOST_DEVICE T first(T x) const {
    return x > 0 ? T(1) : static_cast<T>(alpha) * std::exp(x);
  }
  auto second(const auto& x) const { return exp(-relu(-x)) * cast(less_equal(x, zeros_like(x)), x.dtype()) * alpha; }
};
struct Gelu {  // x P(x), P(x) = (1 + erf(x / sqrt(2))) / 2, p = P'; by erfc, which keeps the digits of small P(x)
  template <class T>
  static MPIGRAD_HOST_DEVICE T part(T x) {
    return T(0.5) * std::erfc(x * T(-0.70710678118654752440));
  }
  template <class T>
  static MPIGRAD_HOST_DEVICE T density(T x) {
    return T(0.39894228040143267794) * std::exp(T(-0.5) * x * x);
  }
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T x) const {
    return x * part(x);
  }
  template <class T>
  MPIGRAD_HOST_DEVICE T first(T x) const {
    const T p = density(x);
    return p == 0 ? part(x) : part(x) + x * p;
  }
  auto second(const auto& x) const { return exp(square(x) * -0.5) * (2 - square(x)) * 0.39894228040143267794; }
};
struct GeluTanh {  // x sigmoid(v) = x (1 + tanh(v / 2)) / 2, v = 2 sqrt(2 / pi) (x + 0.044715 x^3)
  static constexpr double k = 1.59576912160573071176, cube = 0.044715;
  template <class T>
  static MPIGRAD_HOST_DEVICE T gate(T x) {
    return Sigmoid{}(T(k) * (x + T(cube) * x * x * x));
  }
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T x) const {
    return x * gate(x);
  }
  template <class T>
  MPIGRAD_HOST_DEVICE T first(T x) const {
    const T s = gate(x), d = s * (1 - s), v1 = T(k) * (1 + T(3 * cube) * x * x);
    return d == 0 ? s : s + x * d * v1;
  }
  auto second(const auto& x) const {
    const auto s = sigmoid((x + square(x) * x * cube) * k), v1 = affine(square(x), 3 * cube * k, k);
    return s * (1 - s) * (v1 * 2 + x * ((1 - s * 2) * square(v1) + x * (6 * k * cube)));
  }
};
struct Silu {  // x sigmoid(x)
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T x) const {
    return x * Sigmoid{}(x);
  }
  template <class T>
  MPIGRAD_HOST_DEVICE T first(T x) const {
    const T s = Sigmoid{}(x), d = s * (1 - s);
    return d == 0 ? s : s + x * d;
  }
  auto second(const auto& x) const {
    const auto s = sigmoid(x);
    return s * (1 - s) * (2 + x * (1 - s * 2));
  }
};
struct HardSwish {  // x min(max(x + 3, 0), 6) / 6
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T x) const {
    return x <= -3 ? T(0) : x >= 3 ? x : x * (x + 3) * T(1.0 / 6);
  }
  template <class T>
  MPIGRAD_HOST_DEVICE T first(T x) const {
    return x <= -3 ? T(0) : x >= 3 ? T(1) : (2 * x + 3) * T(1.0 / 6);
  }
  auto second(const auto& x) const { return cast(less(abs(x), zeros_like(x) + 3), x.dtype()) * (1.0 / 3); }
};

// g f'(x), a function of the cotangent g and the argument x of F.
template <class F>
struct Adjoint : F {
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(T g, T x) const {
    return g * F::first(x);
  }
};

}  // namespace mpigrad::scalar

// ---- tables with one row per activation: the function, the name of the activation and of its op, and the ONNX operator that
// computes it ("" where the exporter composes several, models/export/export.cpp). R is called with X and each row. Kinds, names,
// kernels of all devices and derivatives are generated from these rows.

// clang-format off
// Activations with derivatives of their own; those with a parameter are also named in activation_type.h.
#define MPIGRAD_PLAIN_ACTIVATIONS(R, X) \
  R(X, Gelu, gelu, "") \
  R(X, GeluTanh, gelu_tanh, "") \
  R(X, Silu, silu, "") \
  R(X, HardSwish, hard_swish, "HardSwish")
#define MPIGRAD_DERIVED_ACTIVATIONS(R, X) \
  MPIGRAD_PLAIN_ACTIVATIONS(R, X) \
  R(X, Elu, elu, "Elu")
// These are also rows of MPIGRAD_PLAIN_FUNCTIONS.
#define MPIGRAD_COMPOSED_ACTIVATIONS(R, X) \
  R(X, Tanh, tanh, "Tanh") \
  R(X, Sigmoid, sigmoid, "Sigmoid") \
  R(X, Softplus, softplus, "Softplus")
// clang-format on

// Values of R: the row as it is; the row of a function of one argument; the row of its adjoint.
#define MPIGRAD_ROW_AS_IS(X, ...) X(__VA_ARGS__)
#define MPIGRAD_ROW_OF_FUNCTION(X, F, name, onnx) X(F, name, nonlinear)
#define MPIGRAD_ROW_OF_ADJOINT(X, F, name, onnx) X(F##Adjoint, name##_adjoint, product)

namespace mpigrad::scalar {

#define MPIGRAD_MAKE(F, ...) using F##Adjoint = Adjoint<F>;
MPIGRAD_DERIVED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::scalar

#endif
