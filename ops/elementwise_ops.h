#pragma once
// The op structs behind ops/elementwise.h: one template per arity, one small function struct per op: its scalar function
// (ops/scalar.h, shared by all devices) and its vjp. y = f(x), cotangents have bars:  xbar = ybar f'(x).

#include <cmath>

#include "framework/op.h"
#include "ops/elementwise.h"
#include "ops/layout_rules.h"
#include "ops/scalar.h"

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
  using Scalar = scalar::Type;                            \
  static constexpr std::string_view name = text;          \
  static constexpr Elementwise kind = Elementwise::Kind;  \
  static constexpr unsigned keeps_input = keeps_x, keeps_output = keeps_y;

struct Affine : scalar::Affine {  // y = a x + b
  MPIGRAD_UNARY(Affine, "affine", linear, 0, 0)
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor&) const { return a == 1 ? g : affine(g, a, 0); }
};
struct DivideBy : scalar::DivideBy {  // y = x / c;  xbar = ybar / c
  MPIGRAD_UNARY(DivideBy, "divide", linear, 0, 0)
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor&) const { return g / c; }
};
struct DivideNumber : scalar::DivideNumber {  // y = c / x;  xbar = -ybar y / x
  MPIGRAD_UNARY(DivideNumber, "divide", nonlinear, 1, 1)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor& y) const { return -(g * y / x); }
};
struct PowScalar : scalar::PowScalar {  // y = x^p;  ybar p x^(p-1)
  MPIGRAD_UNARY(PowScalar, "pow", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    return p == 0 ? zeros_like(x) : affine(g * pow(x, p - 1), p, 0);
  }
};
struct Exp : scalar::Exp {
  MPIGRAD_UNARY(Exp, "exp", nonlinear, 0, 1)
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * y; }
};
struct Expm1 : scalar::Expm1 {
  MPIGRAD_UNARY(Expm1, "expm1", nonlinear, 0, 1)
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * (y + 1); }
};
struct Log : scalar::Log {
  MPIGRAD_UNARY(Log, "log", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g / x; }
};
struct Log1p : scalar::Log1p {
  MPIGRAD_UNARY(Log1p, "log1p", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g / (x + 1); }
};
struct Sqrt : scalar::Sqrt {
  MPIGRAD_UNARY(Sqrt, "sqrt", nonlinear, 0, 1)
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return affine(g / y, 0.5, 0); }
};
struct Square : scalar::Square {
  MPIGRAD_UNARY(Square, "square", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return affine(g * x, 2, 0); }
};
struct Reciprocal : scalar::Reciprocal {
  MPIGRAD_UNARY(Reciprocal, "reciprocal", nonlinear, 0, 1)
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return affine(g * square(y), -1, 0); }
};
// The derivative of |x|: the sign of x, 1 where it is NaN.
Tensor slope_of_abs(const Tensor& x);
struct Abs : scalar::Abs {
  MPIGRAD_UNARY(Abs, "abs", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * slope_of_abs(x); }
};
struct Sign : scalar::Sign {
  MPIGRAD_UNARY(Sign, "sign", nonlinear, 0, 0)
  Tensor cotangent(const Tensor&, const Tensor&, const Tensor&) const { return {}; }
};
struct Floor : scalar::Floor {
  MPIGRAD_UNARY(Floor, "floor", nonlinear, 0, 0)
  Tensor cotangent(const Tensor&, const Tensor&, const Tensor&) const { return {}; }
};
struct Ceil : scalar::Ceil {
  MPIGRAD_UNARY(Ceil, "ceil", nonlinear, 0, 0)
  Tensor cotangent(const Tensor&, const Tensor&, const Tensor&) const { return {}; }
};
struct Sin : scalar::Sin {
  MPIGRAD_UNARY(Sin, "sin", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * cos(x); }
};
struct Cos : scalar::Cos {
  MPIGRAD_UNARY(Cos, "cos", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return -(g * sin(x)); }
};
struct Tanh : scalar::Tanh {
  MPIGRAD_UNARY(Tanh, "tanh", nonlinear, 0, 1)
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * (1 - square(y)); }
};
struct Erf : scalar::Erf {
  MPIGRAD_UNARY(Erf, "erf", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    return affine(g * exp(-square(x)), 2 / std::sqrt(M_PI), 0);
  }
};
struct Sigmoid : scalar::Sigmoid {
  MPIGRAD_UNARY(Sigmoid, "sigmoid", nonlinear, 0, 1)
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * y * (1 - y); }
};
struct Softplus : scalar::Softplus {
  MPIGRAD_UNARY(Softplus, "softplus", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * sigmoid(x); }
};
struct LeakyRelu : scalar::LeakyRelu {
  MPIGRAD_UNARY(LeakyRelu, "leaky_relu", nonlinear, 0, 1)
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return leaky_relu_adjoint(g, y, slope, true); }
};
struct Clamp : scalar::Clamp {
  MPIGRAD_UNARY(Clamp, "clamp", nonlinear, 1, 0)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    const auto bound = [&](double value) { return constant(full(Shape{}, value, x.dtype())); };
    UseDevice device(x.device());
    return where(logical_or(less(x, bound(low)), less(bound(high), x)), constant(zeros_like(g)), g);
  }
};

#undef MPIGRAD_UNARY

// ---- binary functions

#define MPIGRAD_BINARY(Type, text, Kind, keeps_ab, keeps_y)                  \
  using Scalar = scalar::Type;                                               \
  static constexpr std::string_view name = text;                             \
  static constexpr Elementwise kind = Elementwise::Kind;                     \
  static constexpr unsigned keeps_inputs = keeps_ab, keeps_output = keeps_y; \
  using Ref = const Tensor&;

struct Add : scalar::Add {
  MPIGRAD_BINARY(Add, "add", linear, 0, 0)
  Tensor first(Ref g, Ref, Ref, Ref) const { return g; }
  Tensor second(Ref g, Ref, Ref, Ref) const { return g; }
};
struct Subtract : scalar::Subtract {
  MPIGRAD_BINARY(Subtract, "subtract", linear, 0, 0)
  Tensor first(Ref g, Ref, Ref, Ref) const { return g; }
  Tensor second(Ref g, Ref, Ref, Ref) const { return -g; }
};
template <unsigned keeps_ab>  // an operand whose partner is constant is not read again
struct Multiply : scalar::Multiply {
  MPIGRAD_BINARY(Multiply, "multiply", product, keeps_ab, 0)
  Tensor first(Ref g, Ref, Ref b, Ref) const { return g * b; }
  Tensor second(Ref g, Ref a, Ref, Ref) const { return g * a; }
};
struct Divide : scalar::Divide {
  MPIGRAD_BINARY(Divide, "divide", quotient, ops::second, 1)
  Tensor first(Ref g, Ref, Ref b, Ref) const { return g / b; }
  Tensor second(Ref g, Ref, Ref b, Ref y) const { return -(g * y / b); }
};
// a, but 1 where a and b are both 0.
Tensor base_for_derivative(const Tensor& a, const Tensor& b);
struct Pow : scalar::Pow {  // y = a^b;  abar = ybar b a^(b-1), which is 0 for b = 0 whatever a is,  bbar = ybar y log a
  MPIGRAD_BINARY(Pow, "pow", nonlinear, both, 1)
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * b * pow(base_for_derivative(a, b), b - 1); }
  Tensor second(Ref g, Ref a, Ref, Ref y) const { return g * y * log(a); }
};
// The share of the cotangent that goes to the winner: 1, 0, or 1/2 at a tie; 1 for either where one of them is NaN.
Tensor selection(const Tensor& winner, const Tensor& loser);
struct Maximum : scalar::Maximum {
  MPIGRAD_BINARY(Maximum, "maximum", nonlinear, both, 0)
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * selection(a, b); }
  Tensor second(Ref g, Ref a, Ref b, Ref) const { return g * selection(b, a); }
};
struct Minimum : scalar::Minimum {
  MPIGRAD_BINARY(Minimum, "minimum", nonlinear, both, 0)
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * selection(b, a); }
  Tensor second(Ref g, Ref a, Ref b, Ref) const { return g * selection(a, b); }
};
// a is the cotangent, b the result of leaky_relu; linear in a, piecewise constant in b
struct LeakyReluAdjoint : scalar::LeakyReluAdjoint {
  MPIGRAD_BINARY(LeakyReluAdjoint, "leaky_relu_adjoint", product, ops::second, 0)
  bool in_place = false;  // the result takes the memory of a
  Tensor first(Ref g, Ref, Ref b, Ref) const { return leaky_relu_adjoint(g, b, slope, true); }
  Tensor second(Ref, Ref, Ref, Ref) const { return {}; }
};

#undef MPIGRAD_BINARY

struct Equal : scalar::Equal {
  using Scalar = scalar::Equal;
  static constexpr std::string_view name = "equal";
};
struct NotEqual : scalar::NotEqual {
  using Scalar = scalar::NotEqual;
  static constexpr std::string_view name = "not_equal";
};
struct Less : scalar::Less {
  using Scalar = scalar::Less;
  static constexpr std::string_view name = "less";
};
struct LessEqual : scalar::LessEqual {
  using Scalar = scalar::LessEqual;
  static constexpr std::string_view name = "less_equal";
};
struct LogicalAnd : scalar::LogicalAnd {
  using Scalar = scalar::LogicalAnd;
  static constexpr std::string_view name = "logical_and";
};
struct LogicalOr : scalar::LogicalOr {
  using Scalar = scalar::LogicalOr;
  static constexpr std::string_view name = "logical_or";
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
