#pragma once
// The op structs behind ops/elementwise.h: one template per arity, one small function struct per op with its scalar function
// (shared by all devices) and its vjp. y = f(x), cotangents have bars:  xbar = ybar f'(x).

#include <cmath>
#include <type_traits>

#include "framework/op.h"
#include "ops/elementwise.h"
#include "ops/layout_rules.h"

namespace mpigrad::ops {

// ybar summed over the dimensions that broadcasting repeated; none stays none.
Tensor sum_to(const Tensor& g, const Shape& shape);

inline constexpr unsigned first = 1, second = 2, both = 3;

template <class F>
struct Unary {
  F f{};
  static constexpr std::string_view name = F::name;
  static constexpr bool takes_half = true;
  static constexpr unsigned keeps_inputs = F::keeps_input, keeps_outputs = F::keeps_output;

  Types infer(Inputs in) const {
    require(is_floating(in[0].dtype()), "[{}] needs floating-point elements: {}", name, in[0]);
    return {in[0].type()};
  }
  LayoutPtr layout(Inputs in) const { return elementwise_layout(name, in, F::kind); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const { return {f.cotangent(g[0], at.input(0), at.output(0))}; }
};

template <class F>
struct Binary {
  F f{};
  static constexpr std::string_view name = F::name;
  static constexpr bool takes_half = true;
  static constexpr unsigned keeps_inputs = F::keeps_inputs, keeps_outputs = F::keeps_output;

  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const { return elementwise_layout(name, in, F::kind); }
  Tensor reuse(Inputs in) const {
    if constexpr (requires { f.in_place; })
      if (f.in_place && in[0].shape() == in[1].shape()) return {in[0].type(), in[0].storage(), in[0].offset()};
    return {};
  }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const {
    Tensors result(2);
    if (at.wants(0)) result[0] = sum_to(f.first(g[0], at.input(0), at.input(1), at.output(0)), at.input(0).shape());
    if (at.wants(1)) result[1] = sum_to(f.second(g[0], at.input(0), at.input(1), at.output(0)), at.input(1).shape());
    return result;
  }
};

template <class F>
struct Compare {
  static constexpr std::string_view name = F::name;
  static constexpr bool takes_half = true;
  static constexpr bool differentiable = false;
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const { return elementwise_layout(name, in, Elementwise::nonlinear); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
};

// ---- unary functions

#define MPIGRAD_UNARY(Type, text, Kind, keeps_x, keeps_y) \
  static constexpr std::string_view name = text;          \
  static constexpr Elementwise kind = Elementwise::Kind;  \
  static constexpr unsigned keeps_input = keeps_x, keeps_output = keeps_y;

struct Affine {  // y = a x + b
  MPIGRAD_UNARY(Affine, "affine", linear, 0, 0)
  double a = 1, b = 0;
  auto operator()(auto x) const { return static_cast<decltype(x)>(a) * x + static_cast<decltype(x)>(b); }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor&) const { return a == 1 ? g : affine(g, a, 0); }
};
struct DivideBy {  // y = x / c;  xbar = ybar / c
  MPIGRAD_UNARY(DivideBy, "divide", linear, 0, 0)
  double c = 1;
  auto operator()(auto x) const { return x / static_cast<decltype(x)>(c); }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor&) const { return g / c; }
};
struct DivideNumber {  // y = c / x;  xbar = -ybar y / x
  MPIGRAD_UNARY(DivideNumber, "divide", nonlinear, 1, 1)
  double c = 1;
  auto operator()(auto x) const { return static_cast<decltype(x)>(c) / x; }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor& y) const { return -(g * y / x); }
};
struct PowScalar {  // y = x^p;  ybar p x^(p-1)
  MPIGRAD_UNARY(PowScalar, "pow", nonlinear, 1, 0)
  double p = 1;
  auto operator()(auto x) const { return std::pow(x, static_cast<decltype(x)>(p)); }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    return p == 0 ? zeros_like(x) : affine(g * pow(x, p - 1), p, 0);
  }
};
struct Exp {
  MPIGRAD_UNARY(Exp, "exp", nonlinear, 0, 1)
  auto operator()(auto x) const { return std::exp(x); }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * y; }
};
struct Expm1 {
  MPIGRAD_UNARY(Expm1, "expm1", nonlinear, 0, 1)
  auto operator()(auto x) const { return std::expm1(x); }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * (y + 1); }
};
struct Log {
  MPIGRAD_UNARY(Log, "log", nonlinear, 1, 0)
  auto operator()(auto x) const { return std::log(x); }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g / x; }
};
struct Log1p {
  MPIGRAD_UNARY(Log1p, "log1p", nonlinear, 1, 0)
  auto operator()(auto x) const { return std::log1p(x); }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g / (x + 1); }
};
struct Sqrt {
  MPIGRAD_UNARY(Sqrt, "sqrt", nonlinear, 0, 1)
  auto operator()(auto x) const { return std::sqrt(x); }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return affine(g / y, 0.5, 0); }
};
struct Square {
  MPIGRAD_UNARY(Square, "square", nonlinear, 1, 0)
  auto operator()(auto x) const { return x * x; }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return affine(g * x, 2, 0); }
};
struct Reciprocal {
  MPIGRAD_UNARY(Reciprocal, "reciprocal", nonlinear, 0, 1)
  auto operator()(auto x) const { return decltype(x)(1) / x; }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return affine(g * square(y), -1, 0); }
};
struct Abs {
  MPIGRAD_UNARY(Abs, "abs", nonlinear, 1, 0)
  auto operator()(auto x) const { return std::abs(x); }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * sign(x); }
};
template <class Step>
struct PiecewiseConstant {
  MPIGRAD_UNARY(PiecewiseConstant, Step::name, nonlinear, 0, 0)
  auto operator()(auto x) const { return Step::value(x); }
  Tensor cotangent(const Tensor&, const Tensor&, const Tensor&) const { return {}; }
};
struct SignStep {
  static constexpr std::string_view name = "sign";
  static auto value(auto x) { return decltype(x)((decltype(x)(0) < x) - (x < decltype(x)(0))); }
};
struct FloorStep {
  static constexpr std::string_view name = "floor";
  static auto value(auto x) { return std::floor(x); }
};
struct CeilStep {
  static constexpr std::string_view name = "ceil";
  static auto value(auto x) { return std::ceil(x); }
};
using Sign = PiecewiseConstant<SignStep>;
using Floor = PiecewiseConstant<FloorStep>;
using Ceil = PiecewiseConstant<CeilStep>;
struct Sin {
  MPIGRAD_UNARY(Sin, "sin", nonlinear, 1, 0)
  auto operator()(auto x) const { return std::sin(x); }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * cos(x); }
};
struct Cos {
  MPIGRAD_UNARY(Cos, "cos", nonlinear, 1, 0)
  auto operator()(auto x) const { return std::cos(x); }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return -(g * sin(x)); }
};
struct Tanh {
  MPIGRAD_UNARY(Tanh, "tanh", nonlinear, 0, 1)
  auto operator()(auto x) const { return std::tanh(x); }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * (1 - square(y)); }
};
struct Erf {
  MPIGRAD_UNARY(Erf, "erf", nonlinear, 1, 0)
  auto operator()(auto x) const { return std::erf(x); }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    return affine(g * exp(-square(x)), 2 / std::sqrt(M_PI), 0);
  }
};
struct Sigmoid {
  MPIGRAD_UNARY(Sigmoid, "sigmoid", nonlinear, 0, 1)
  template <class T>
  T operator()(T x) const {
    const T e = std::exp(-std::abs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
  }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * y * (1 - y); }
};
struct Softplus {
  MPIGRAD_UNARY(Softplus, "softplus", nonlinear, 1, 0)
  auto operator()(auto x) const { return std::max(x, decltype(x)(0)) + std::log1p(std::exp(-std::abs(x))); }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * sigmoid(x); }
};
struct LeakyRelu {
  MPIGRAD_UNARY(LeakyRelu, "leaky_relu", nonlinear, 0, 1)
  double slope = 0;
  // Selections, which vectorise as blends: slope 0 is 0, not 0 * x, which is -0 and at -infinity NaN. NaN stays NaN.
  template <class T>
  T operator()(T x) const {
    const T a = static_cast<T>(slope), below = a == 0 ? T(0) : a * x;
    return x <= 0 ? below : x;
  }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return leaky_relu_adjoint(g, y, slope, true); }
};
struct Clamp {
  MPIGRAD_UNARY(Clamp, "clamp", nonlinear, 1, 0)
  double low = 0, high = 0;
  auto operator()(auto x) const { return std::min(std::max(x, static_cast<decltype(x)>(low)), static_cast<decltype(x)>(high)); }
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    const auto bound = [&](double value) { return constant(full(Shape{}, value, x.dtype())); };
    UseDevice device(x.device());
    return where(logical_and(less_equal(bound(low), x), less_equal(x, bound(high))), g, zeros_like(g));
  }
};

#undef MPIGRAD_UNARY

// ---- binary functions

#define MPIGRAD_BINARY(text, Kind, keeps_ab, keeps_y)                        \
  static constexpr std::string_view name = text;                             \
  static constexpr Elementwise kind = Elementwise::Kind;                     \
  static constexpr unsigned keeps_inputs = keeps_ab, keeps_output = keeps_y; \
  using Ref = const Tensor&;

struct Add {
  MPIGRAD_BINARY("add", linear, 0, 0)
  auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(a + b); }
  Tensor first(Ref g, Ref, Ref, Ref) const { return g; }
  Tensor second(Ref g, Ref, Ref, Ref) const { return g; }
};
struct Subtract {
  MPIGRAD_BINARY("subtract", linear, 0, 0)
  auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(a - b); }
  Tensor first(Ref g, Ref, Ref, Ref) const { return g; }
  Tensor second(Ref g, Ref, Ref, Ref) const { return -g; }
};
template <unsigned keeps_ab>  // an operand whose partner is constant is not read again
struct Multiply {
  MPIGRAD_BINARY("multiply", product, keeps_ab, 0)
  auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(a * b); }
  Tensor first(Ref g, Ref, Ref b, Ref) const { return g * b; }
  Tensor second(Ref g, Ref a, Ref, Ref) const { return g * a; }
};
struct Divide {
  MPIGRAD_BINARY("divide", quotient, ops::second, 1)
  // Of integers: x / 0 is 0, and the lowest number / -1 is itself; the processor would end the program on both.
  template <class T>
  T operator()(T a, T b) const {
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
  Tensor first(Ref g, Ref, Ref b, Ref) const { return g / b; }
  Tensor second(Ref g, Ref, Ref b, Ref y) const { return -(g * y / b); }
};
// a, but 1 where a and b are both 0.
Tensor base_for_derivative(const Tensor& a, const Tensor& b);
struct Pow {  // y = a^b;  abar = ybar b a^(b-1), which is 0 for b = 0 whatever a is,  bbar = ybar y log a
  MPIGRAD_BINARY("pow", nonlinear, both, 1)
  auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(std::pow(a, b)); }
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * b * pow(base_for_derivative(a, b), b - 1); }
  Tensor second(Ref g, Ref a, Ref, Ref y) const { return g * y * log(a); }
};
// The share of the cotangent that goes to a: 1, 0, or 1/2 at a tie. NaN takes none.
Tensor selection(const Tensor& winner, const Tensor& loser);
struct Maximum {
  MPIGRAD_BINARY("maximum", nonlinear, both, 0)
  auto operator()(auto a, auto b) const { return a > b || a != a ? a : b; }  // NaN, from either side, wins
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * selection(a, b); }
  Tensor second(Ref g, Ref a, Ref b, Ref) const { return g * selection(b, a); }
};
struct Minimum {
  MPIGRAD_BINARY("minimum", nonlinear, both, 0)
  auto operator()(auto a, auto b) const { return a < b || a != a ? a : b; }
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * selection(b, a); }
  Tensor second(Ref g, Ref a, Ref b, Ref) const { return g * selection(a, b); }
};
struct LeakyReluAdjoint {  // a is the cotangent, b the result of leaky_relu; linear in a, piecewise constant in b
  MPIGRAD_BINARY("leaky_relu_adjoint", product, ops::second, 0)
  double slope = 0;
  bool in_place = false;  // the result takes the memory of a
  template <class T>
  T operator()(T a, T b) const {  // selections, as in LeakyRelu: 0 also for an infinite cotangent
    const T s = static_cast<T>(slope), below = s == T(0) ? T(0) : static_cast<T>(s * a);
    return b > T(0) ? a : below;
  }
  Tensor first(Ref g, Ref, Ref b, Ref) const { return leaky_relu_adjoint(g, b, slope, true); }
  Tensor second(Ref, Ref, Ref, Ref) const { return {}; }
};

#undef MPIGRAD_BINARY

struct Equal {
  static constexpr std::string_view name = "equal";
  bool operator()(auto a, auto b) const { return a == b; }
};
struct NotEqual {
  static constexpr std::string_view name = "not_equal";
  bool operator()(auto a, auto b) const { return a != b; }
};
struct Less {
  static constexpr std::string_view name = "less";
  bool operator()(auto a, auto b) const { return a < b; }
};
struct LessEqual {
  static constexpr std::string_view name = "less_equal";
  bool operator()(auto a, auto b) const { return a <= b; }
};
struct LogicalAnd {
  static constexpr std::string_view name = "logical_and";
  bool operator()(auto a, auto b) const { return a != decltype(a)(0) && b != decltype(b)(0); }
};
struct LogicalOr {
  static constexpr std::string_view name = "logical_or";
  bool operator()(auto a, auto b) const { return a != decltype(a)(0) || b != decltype(b)(0); }
};

// y = c ? a : b;  abar = c ? ybar : 0,  bbar = c ? 0 : ybar
struct Where {
  static constexpr std::string_view name = "where";
  static constexpr bool takes_half = true;
  static constexpr unsigned keeps_inputs = 1;
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct Cast {
  DType to = DType::float32;
  static constexpr std::string_view name = "cast";
  static constexpr bool takes_half = true;
  Types infer(Inputs in) const { return {{in[0].shape(), to}}; }
  LayoutPtr layout(Inputs in) const {
    return elementwise_layout(name, in, is_floating(to) ? Elementwise::linear : Elementwise::nonlinear);
  }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const { return {cast(g[0], at.input(0).dtype())}; }
};

}  // namespace mpigrad::ops
