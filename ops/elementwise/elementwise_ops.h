#pragma once
// Ops of ops/elementwise/elementwise.h: one template per arity, and one small function struct per op with its scalar function
// (ops/elementwise/scalar.h, shared by all devices) and its vjp. y = f(x); cotangents have bars: xbar = ybar f'(x).

#include <cmath>
#include <limits>
#include <numbers>

#include "framework/engine/op.h"
#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/scalar.h"
#include "ops/layout_rules.h"
#include "ops/reduce/reduce.h"

namespace mpigrad::ops {

// Values that a vjp reads.
inline constexpr unsigned none = 0, first = 1, second = 2, both = 3, output = 1;

// Element types of a function, from the lists in ops/elementwise/scalar.h.
enum class ElementTypes : std::uint8_t { arithmetic, floating, integral };
struct ElementwiseRow {
  std::string_view name;
  Elementwise kind = Elementwise::nonlinear;
  ElementTypes types = ElementTypes::arithmetic;
};
template <class Scalar>
inline constexpr ElementwiseRow row_of{};
#define MPIGRAD_ROW(F, text, what, of) \
  template <>                          \
  inline constexpr ElementwiseRow row_of<scalar::F>{.name = #text, .kind = Elementwise::what, .types = ElementTypes::of};
#define MPIGRAD_ARITHMETIC_ROW(F, text, what) MPIGRAD_ROW(F, text, what, arithmetic)
#define MPIGRAD_FLOATING_ROW(F, text, what) MPIGRAD_ROW(F, text, what, floating)
#define MPIGRAD_INTEGRAL_ROW(F, text, what) MPIGRAD_ROW(F, text, what, integral)
MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_FLOATING_ROW)
MPIGRAD_ARITHMETIC_FUNCTIONS(MPIGRAD_ARITHMETIC_ROW)
MPIGRAD_FLOATING_FUNCTIONS(MPIGRAD_FLOATING_ROW)
MPIGRAD_INTEGRAL_FUNCTIONS(MPIGRAD_INTEGRAL_ROW)
MPIGRAD_ADJOINT_FUNCTIONS(MPIGRAD_FLOATING_ROW)
MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_ARITHMETIC_ROW)
#undef MPIGRAD_ARITHMETIC_ROW
#undef MPIGRAD_FLOATING_ROW
#undef MPIGRAD_INTEGRAL_ROW
#undef MPIGRAD_ROW

// True if F is computed for numbers of type T.
template <class F, class T>
inline constexpr bool takes = F::row.types == ElementTypes::arithmetic ||
                              (F::row.types == ElementTypes::floating) == is_floating(dtype_of<T>());

// An op's scalar function and the values that its cotangents need.
template <class S, unsigned of_inputs = none, unsigned of_output = none>
struct Function : S {
  using Scalar = S;
  using Ref = const Tensor&;
  static constexpr ElementwiseRow row = row_of<S>;
  static_assert(!row.name.empty(), "the function has no row in ops/elementwise/scalar.h");
  static constexpr unsigned keeps_inputs = of_inputs, keeps_output = of_output;
};

template <class F>
struct Unary {
  F f{};
  static constexpr OpTraits traits() {
    return {.name = F::row.name, .keeps_inputs = F::keeps_inputs, .keeps_outputs = F::keeps_output, .takes_half = true};
  }

  Types infer(Inputs in) const {
    require(is_floating(in[0].dtype()), "[{}] needs floating-point elements: {}", F::row.name, in[0]);
    return {in[0].type()};
  }
  LayoutPtr layout(Inputs in) const { return elementwise_layout(F::row.name, in, F::row.kind); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  double divisor() const {
    if constexpr (requires { f.divisor(); }) return f.divisor();
    else return 0;
  }
  Tensors vjp(const Replay& at, Inputs g) const { return {f.cotangent(g[0], at.input(0), at.output(0))}; }
};

template <class F>
struct Binary {
  F f{};
  static constexpr OpTraits traits() {
    return {.name = F::row.name, .keeps_inputs = F::keeps_inputs, .keeps_outputs = F::keeps_output, .takes_half = true};
  }

  unsigned kept_inputs() const {
    if constexpr (requires { f.reads; }) return f.reads;
    return F::keeps_inputs;
  }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const { return elementwise_layout(F::row.name, in, F::row.kind); }
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
  static constexpr OpTraits traits() { return {.name = F::row.name, .differentiable = false, .takes_half = true}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const { return elementwise_layout(F::row.name, in, F::row.kind); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
};

// ---- unary functions

struct Affine : Function<scalar::Affine> {  // y = a x + b
  double divisor() const { return a == 1 || a == -1 ? 1 : std::numeric_limits<double>::infinity(); }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor&) const { return a == 1 ? g : affine(g, a, 0); }
};
struct DivideBy : Function<scalar::DivideBy> {  // y = x / c;  xbar = ybar / c
  double divisor() const { return c; }
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor&) const { return g / c; }
};
struct DivideNumber : Function<scalar::DivideNumber, first, output> {  // y = c / x;  xbar = -ybar y / x
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor& y) const { return -(g * y / x); }
};
struct PowScalar : Function<scalar::PowScalar, first> {  // y = x^p;  ybar p x^(p-1)
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    return p == 0 ? zeros_like(x) : affine(g * pow(x, p - 1), p, 0);
  }
};
struct Exp : Function<scalar::Exp, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * y; }
};
struct Expm1 : Function<scalar::Expm1, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * (y + 1); }
};
struct Log : Function<scalar::Log, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g / x; }
};
struct Log1p : Function<scalar::Log1p, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g / (x + 1); }
};
struct Sqrt : Function<scalar::Sqrt, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return affine(g / y, 0.5, 0); }
};
struct Square : Function<scalar::Square, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return affine(g * x, 2, 0); }
};
struct Reciprocal : Function<scalar::Reciprocal, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return affine(g * square(y), -1, 0); }
};
// The derivative of |x|: the sign of x, 1 where x is NaN.
Tensor derivative_of_abs(const Tensor& x);
struct Abs : Function<scalar::Abs, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * derivative_of_abs(x); }
};
struct Sign : Function<scalar::Sign> {
  Tensor cotangent(const Tensor&, const Tensor&, const Tensor&) const { return {}; }
};
struct Floor : Function<scalar::Floor> {
  Tensor cotangent(const Tensor&, const Tensor&, const Tensor&) const { return {}; }
};
struct Ceil : Function<scalar::Ceil> {
  Tensor cotangent(const Tensor&, const Tensor&, const Tensor&) const { return {}; }
};
struct Round : Function<scalar::Round> {
  Tensor cotangent(const Tensor&, const Tensor&, const Tensor&) const { return {}; }
};
struct Trunc : Function<scalar::Trunc> {
  Tensor cotangent(const Tensor&, const Tensor&, const Tensor&) const { return {}; }
};
struct Exp2 : Function<scalar::Exp2, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return affine(g * y, std::numbers::ln2, 0); }
};
struct Log2 : Function<scalar::Log2, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return affine(g / x, std::numbers::log2e, 0); }
};
struct Log10 : Function<scalar::Log10, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return affine(g / x, std::numbers::log10e, 0); }
};
struct Rsqrt : Function<scalar::Rsqrt, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return affine(g * y * square(y), -0.5, 0); }
};
struct Sin : Function<scalar::Sin, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * cos(x); }
};
struct Cos : Function<scalar::Cos, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return -(g * sin(x)); }
};
struct Tan : Function<scalar::Tan, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * (1 + square(y)); }
};
struct Asin : Function<scalar::Asin, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * rsqrt(1 - square(x)); }
};
struct Acos : Function<scalar::Acos, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return -(g * rsqrt(1 - square(x))); }
};
struct Atan : Function<scalar::Atan, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g / (1 + square(x)); }
};
struct Sinh : Function<scalar::Sinh, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * cosh(x); }
};
struct Cosh : Function<scalar::Cosh, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * sinh(x); }
};
struct Asinh : Function<scalar::Asinh, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * rsqrt(1 + square(x)); }
};
struct Acosh : Function<scalar::Acosh, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * rsqrt(square(x) - 1); }
};
struct Atanh : Function<scalar::Atanh, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g / (1 - square(x)); }
};
struct Tanh : Function<scalar::Tanh, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * (1 - square(y)); }
};
struct Erf : Function<scalar::Erf, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    return affine(g * exp(-square(x)), 2 / std::sqrt(M_PI), 0);
  }
};
struct Erfc : Function<scalar::Erfc, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    return affine(g * exp(-square(x)), -2 * std::numbers::inv_sqrtpi, 0);
  }
};
struct Erfinv : Function<scalar::Erfinv, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const {
    return affine(g * exp(square(y)), 0.5 / std::numbers::inv_sqrtpi, 0);
  }
};
struct Lgamma : Function<scalar::Lgamma, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * digamma(x); }
};
struct Polygamma : Function<scalar::Polygamma, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * polygamma(order + 1, x); }
};
struct Sigmoid : Function<scalar::Sigmoid, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return g * y * (1 - y); }
};
struct Softplus : Function<scalar::Softplus, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return g * sigmoid(x); }
};
struct LeakyRelu : Function<scalar::LeakyRelu, none, output> {
  Tensor cotangent(const Tensor& g, const Tensor&, const Tensor& y) const { return leaky_relu_adjoint(g, y, fused, true); }
};
struct Clamp : Function<scalar::Clamp, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const {
    const auto bound = [&](double value) { return constant(full(Shape{}, value, x.dtype())); };
    UseDevice device(x.device());
    return where(logical_or(less(x, bound(low)), less(bound(high), x)), constant(zeros_like(g)), g);
  }
};

// ---- binary functions

struct Add : Function<scalar::Add> {
  Tensor first(Ref g, Ref, Ref, Ref) const { return g; }
  Tensor second(Ref g, Ref, Ref, Ref) const { return g; }
};
struct Subtract : Function<scalar::Subtract> {
  Tensor first(Ref g, Ref, Ref, Ref) const { return g; }
  Tensor second(Ref g, Ref, Ref, Ref) const { return -g; }
};
struct Multiply : Function<scalar::Multiply, both> {
  unsigned reads = both;  // an operand is not read again if its partner is constant
  Tensor first(Ref g, Ref, Ref b, Ref) const { return g * b; }
  Tensor second(Ref g, Ref a, Ref, Ref) const { return g * a; }
};
struct Divide : Function<scalar::Divide, second, output> {
  Tensor first(Ref g, Ref, Ref b, Ref) const { return g / b; }
  Tensor second(Ref g, Ref, Ref b, Ref y) const { return -(g * y / b); }
};
// a, or 1 where a and b are both 0.
Tensor base_for_derivative(const Tensor& a, const Tensor& b);
struct Pow : Function<scalar::Pow, both,
                      1> {  // y = a^b;  abar = ybar b a^(b-1), which is 0 for b = 0 whatever a is,  bbar = ybar y log a
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * b * pow(base_for_derivative(a, b), b - 1); }
  Tensor second(Ref g, Ref a, Ref, Ref y) const { return g * y * log(a); }
};
// The part of the cotangent that goes to the winner: 1, 0, or 1/2 at a tie; 1 for each operand where one of them is NaN.
Tensor selection(const Tensor& winner, const Tensor& loser);
struct Maximum : Function<scalar::Maximum, both> {
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * selection(a, b); }
  Tensor second(Ref g, Ref a, Ref b, Ref) const { return g * selection(b, a); }
};
struct Minimum : Function<scalar::Minimum, both> {
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * selection(b, a); }
  Tensor second(Ref g, Ref a, Ref b, Ref) const { return g * selection(a, b); }
};
struct Remainder : Function<scalar::Remainder, both> {  // y = a - floor(a / b) b
  Tensor first(Ref g, Ref, Ref, Ref) const { return g; }
  Tensor second(Ref g, Ref a, Ref b, Ref) const { return -(g * floor_divide(a, b)); }
};
struct FloorDivide : Function<scalar::FloorDivide> {
  Tensor first(Ref, Ref, Ref, Ref) const { return {}; }
  Tensor second(Ref, Ref, Ref, Ref) const { return {}; }
};
struct Atan2 : Function<scalar::Atan2, both> {
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * (b / (square(a) + square(b))); }
  Tensor second(Ref g, Ref a, Ref b, Ref) const { return -(g * (a / (square(a) + square(b)))); }
};
struct Hypot : Function<scalar::Hypot, both, output> {
  Tensor first(Ref g, Ref a, Ref, Ref y) const { return g * (a / y); }
  Tensor second(Ref g, Ref, Ref b, Ref y) const { return g * (b / y); }
};
struct Copysign : Function<scalar::Copysign, both> {  // y = |a| sign(b)
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * copysign(copysign(ones_like(a), a), b) * copysign(ones_like(a), a); }
  Tensor second(Ref, Ref, Ref, Ref) const { return {}; }
};
struct Nextafter : Function<scalar::Nextafter> {
  Tensor first(Ref g, Ref, Ref, Ref) const { return g; }
  Tensor second(Ref, Ref, Ref, Ref) const { return {}; }
};
// a - b, or 0 where both are the same infinity.
Tensor finite_difference(const Tensor& a, const Tensor& b);
struct Logaddexp : Function<scalar::Logaddexp, both> {  // y = log(e^a + e^b)
  Tensor first(Ref g, Ref a, Ref b, Ref) const { return g * sigmoid(finite_difference(a, b)); }
  Tensor second(Ref g, Ref a, Ref b, Ref) const { return g * sigmoid(finite_difference(b, a)); }
};
template <class S>
struct Bitwise : Function<S> {  // integers have no derivatives
  using Ref = const Tensor&;
  Tensor first(Ref, Ref, Ref, Ref) const { return {}; }
  Tensor second(Ref, Ref, Ref, Ref) const { return {}; }
};
struct BitwiseAnd : Bitwise<scalar::BitwiseAnd> {};
struct BitwiseOr : Bitwise<scalar::BitwiseOr> {};
struct BitwiseXor : Bitwise<scalar::BitwiseXor> {};
struct LeftShift : Bitwise<scalar::LeftShift> {};
struct RightShift : Bitwise<scalar::RightShift> {};
// a is the cotangent, b the result of leaky_relu; linear in a, piecewise constant in b
struct LeakyReluAdjoint : Function<scalar::LeakyReluAdjoint, second> {
  bool in_place = false;  // the result takes the memory of a
  Tensor first(Ref g, Ref, Ref b, Ref) const { return leaky_relu_adjoint(g, b, fused, true); }
  Tensor second(Ref, Ref, Ref, Ref) const { return {}; }
};

// ---- comparisons

struct Equal : Function<scalar::Equal> {};
struct NotEqual : Function<scalar::NotEqual> {};
struct Less : Function<scalar::Less> {};
struct LessEqual : Function<scalar::LessEqual> {};
struct LogicalAnd : Function<scalar::LogicalAnd> {};
struct LogicalOr : Function<scalar::LogicalOr> {};
struct LogicalXor : Function<scalar::LogicalXor> {};

// y = c ? a : b;  abar = c ? ybar : 0,  bbar = c ? 0 : ybar
struct Where {
  static constexpr OpTraits traits() { return {.name = "where", .keeps_inputs = 1, .takes_half = true}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct Cast {
  DType to = DType::float32;
  static constexpr OpTraits traits() { return {.name = "cast", .takes_half = true}; }
  Types infer(Inputs in) const { return {{in[0].shape(), to}}; }
  LayoutPtr layout(Inputs in) const {
    return elementwise_layout("cast", in, is_floating(to) ? Elementwise::linear : Elementwise::nonlinear);
  }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const { return {cast(g[0], at.input(0).dtype())}; }
};

}  // namespace mpigrad::ops
