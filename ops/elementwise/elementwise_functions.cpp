#include "ops/elementwise/elementwise.h"

#include <limits>

#include "ops/complex/complex_operands.h"
#include "ops/elementwise/activation_ops.h"
#include "ops/elementwise/aligned_operands.h"
#include "ops/elementwise/broadcast.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

void require_equal_types(std::string_view op, const Tensor& a, const Tensor& b) {
  require(a.dtype() == b.dtype(), "[{}] element types differ, cast() one of them: {} and {}", op, a, b);
}

}  // namespace

template <class F>
Types Binary<F>::infer(Inputs in) const {
  require_equal_types(F::row.name, in[0], in[1]);
  if constexpr (F::row.types == ElementTypes::floating)
    require(is_floating(in[0].dtype()), "[{}] needs floating-point elements: {} and {}", F::row.name, in[0], in[1]);
  if constexpr (F::row.types == ElementTypes::integral)
    require(!is_floating(in[0].dtype()), "[{}] needs integers or booleans: {} and {}", F::row.name, in[0], in[1]);
  return {{broadcast_shapes(F::row.name, in[0].shape(), in[1].shape()), in[0].dtype()}};
}

template <class F>
Types Compare<F>::infer(Inputs in) const {
  require_equal_types(F::row.name, in[0], in[1]);
  return {{broadcast_shapes(F::row.name, in[0].shape(), in[1].shape()), DType::boolean}};
}

Types Where::infer(Inputs in) const {
  require(in[0].dtype() == DType::boolean, "[where] the condition is boolean: {}", in[0]);
  constexpr auto name = traits().name;
  require_equal_types(name, in[1], in[2]);
  return {{broadcast_shapes(name, in[0].shape(), broadcast_shapes(name, in[1].shape(), in[2].shape())), in[1].dtype()}};
}

LayoutPtr Where::layout(Inputs in) const { return elementwise_layout(traits().name, in, Elementwise::nonlinear); }

Tensors Where::vjp(const Replay& at, Inputs g) const {
  Tensors result(3);
  const Tensor none = constant(zeros_like(g[0]));
  if (at.wants(1)) result[1] = sum_to(where(at.input(0), g[0], none), at.input(1).shape());
  if (at.wants(2)) result[2] = sum_to(where(at.input(0), none, g[0]), at.input(2).shape());
  return result;
}

Tensor base_for_derivative(const Tensor& a, const Tensor& b) {
  UseDevice device(a.device());
  const auto number = [&](double value) { return constant(full(Shape{}, value, a.dtype())); };
  const auto zero = number(0);
  return where(logical_and(equal(a, zero), equal(b, zero)), number(1), a);
}

Tensor selection(const Tensor& winner, const Tensor& loser) {
  const DType dtype = winner.dtype();
  return affine(cast(less(winner, loser), dtype) + cast(less_equal(winner, loser), dtype), -0.5, 1);
}

Tensor finite_difference(const Tensor& a, const Tensor& b) {
  const Tensor difference = a - b;
  return where(equal(a, b), constant(zeros_like(difference)), difference);
}

Tensor derivative_of_abs(const Tensor& x) {
  UseDevice device(x.device());
  return where(equal(x, x), sign(constant(x)), constant(full(Shape{}, 1, x.dtype())));
}

// Used only by activations.
#define MPIGRAD_MAKE(F, ...) template Types Binary<F>::infer(Inputs) const;
MPIGRAD_ADJOINT_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace ops

using namespace ops;

namespace {

template <class F, class... Fs>
constexpr bool one_of = (std::is_same_v<F, Fs> || ...);

// Mixed precision: if x has 16 bits, a float32 variable w such as a parameter is rounded to x's type, as in align_operands() for
// tensors with layouts. Constants keep their type and are refused, and single numbers (terms of a loss) are not rounded to each
// other.
Tensor beside(const Tensor& w, const Tensor& x) {
  return w.dtype() == DType::float32 && is_half(x.dtype()) && !w.is_constant() && !w.layout() && !x.layout() && x.rank() > 0
             ? cast(w, x.dtype())
             : w;
}
// x cast to the common type with y, if there is one.
Tensor promoted(const Tensor& x, const Tensor& y) { return cast(x, result_type(x.dtype(), y.dtype()).value_or(x.dtype())); }
template <class F>
Tensor binary(const F& f, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() && result_type(a.dtype(), b.dtype())) return binary(f, promoted(a, b), promoted(b, a));
  return apply_aligned(Binary<F>{f}, F::row.kind, {beside(a, b), beside(b, a)});
}
template <class F>
Tensor compare(const Tensor& a, const Tensor& b) {
  const auto fixed = [](const Tensor& x) { return x.layout() ? constant(x) : x; };  // no derivative, so no replication
  return apply_aligned(Compare<F>{}, F::row.kind, {promoted(fixed(a), b), promoted(fixed(b), a)});
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  return detail::any_complex(a, b) ? detail::add_complex(a, b, false) : binary(Add{}, a, b);
}
Tensor subtract(const Tensor& a, const Tensor& b) {
  return detail::any_complex(a, b) ? detail::add_complex(a, b, true) : binary(Subtract{}, a, b);
}
Tensor multiply(const Tensor& a, const Tensor& b) {
  if (detail::any_complex(a, b)) return detail::multiply_complex(a, b);
  const auto reads = b.is_constant() ? ops::second : a.is_constant() ? ops::first : ops::both;
  return binary(Multiply{{}, reads}, a, b);
}
Tensor divide(const Tensor& a, const Tensor& b) {
  return detail::any_complex(a, b) ? detail::divide_complex(a, b) : binary(Divide{}, a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) { return binary(Maximum{}, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary(Minimum{}, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return binary(Pow{}, a, b); }

Tensor affine(const Tensor& x, double scale, double shift) {
  if (shift != 0 && x.layout())
    require(!x.layout()->has(Placement::partial),
            "[affine] adds a constant to a partial sum, once per rank; write once() around it: {}", x);
  if (is_complex(x.dtype())) return detail::affine_complex(x, scale, shift);
  return mpigrad::apply(Unary<Affine>{{{{.a = scale, .b = shift}}}}, {x});
}
Tensor negate(const Tensor& x) {
  if (is_differentiable(x.dtype())) return affine(x, -1, -0.0);  // affine() with shift -0 gives -0 for 0
  return x.dtype() == DType::int64 ? x * -1 : 0 - x;             // sums, also partial ones, are int64
}

namespace {

// A function's integer or complex form if it has one; otherwise none, and the op refuses such tensors.
template <class F>
Tensor of_integers(const Tensor& x) {
  if (is_complex(x.dtype())) {
    if constexpr (one_of<F, Abs>) return detail::abs_complex(x);
    else if constexpr (one_of<F, Square>) return x * x;
    else return {};
  }
  if constexpr (one_of<F, Floor, Ceil, Round, Trunc>) return x;
  else if constexpr (one_of<F, Square>) return x * x;
  else if constexpr (one_of<F, Abs>)
    return x.dtype() == DType::boolean ? Tensor() : x.dtype() == DType::uint8 ? x : maximum(x, 0 - x);
  else if constexpr (one_of<F, Sign>)
    return x.dtype() == DType::boolean ? Tensor() : cast(0 < x, x.dtype()) - cast(x < 0, x.dtype());
  else return {};
}

}  // namespace

#define MPIGRAD_MAKE(F, name, ...)                      \
  Tensor name(const Tensor& x) {                        \
    if (!is_floating(x.dtype()))                        \
      if (const Tensor y = of_integers<F>(x)) return y; \
    return mpigrad::apply(Unary<F>{}, {x});             \
  }
MPIGRAD_PLAIN_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
Tensor polygamma(int order, const Tensor& x) {
  require(order >= 0 && order <= 100, "[polygamma] the order is from 0 to 100, got {}", order);
  return mpigrad::apply(Unary<Polygamma>{{{{.order = order}}}}, {x});
}
Tensor remainder(const Tensor& a, const Tensor& b) { return binary(Remainder{}, a, b); }
Tensor floor_divide(const Tensor& a, const Tensor& b) { return binary(FloorDivide{}, a, b); }
Tensor atan2(const Tensor& y, const Tensor& x) { return binary(Atan2{}, y, x); }
Tensor hypot(const Tensor& a, const Tensor& b) { return binary(Hypot{}, a, b); }
Tensor copysign(const Tensor& a, const Tensor& b) { return binary(Copysign{}, a, b); }
Tensor nextafter(const Tensor& a, const Tensor& b) {  // 16-bit types compute in float32, whose next number rounds back
  require(!is_half(a.dtype()), "[nextafter] has no {} form: {} and {}", name_of(a.dtype()), a, b);
  return binary(Nextafter{}, a, b);
}
Tensor logaddexp(const Tensor& a, const Tensor& b) { return binary(Logaddexp{}, a, b); }
Tensor bitwise_and(const Tensor& a, const Tensor& b) { return binary(BitwiseAnd{}, a, b); }
Tensor bitwise_or(const Tensor& a, const Tensor& b) { return binary(BitwiseOr{}, a, b); }
Tensor bitwise_xor(const Tensor& a, const Tensor& b) { return binary(BitwiseXor{}, a, b); }
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b) {
  require(a.dtype() != DType::boolean, "[bitwise_left_shift] needs integers: {}", a);
  return binary(LeftShift{}, a, b);
}
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b) {
  require(a.dtype() != DType::boolean, "[bitwise_right_shift] needs integers: {}", a);
  return binary(RightShift{}, a, b);
}
Tensor bitwise_invert(const Tensor& x) {
  require(!is_differentiable(x.dtype()), "[bitwise_invert] needs integers or booleans: {}", x);
  if (x.dtype() == DType::boolean) return logical_not(x);
  return x.dtype() == DType::uint8 ? 255 - x : -1 - x;
}
Mask isnan(const Tensor& x) { return not_equal(x, x); }
Mask isinf(const Tensor& x) {
  return is_floating(x.dtype()) ? abs(constant(x)) == std::numeric_limits<double>::infinity() : isnan(x);
}
Mask isfinite(const Tensor& x) {
  return is_floating(x.dtype()) ? abs(constant(x)) < std::numeric_limits<double>::infinity() : equal(x, x);
}
Mask signbit(const Tensor& x) { return is_floating(x.dtype()) ? copysign(Number(1).like("signbit", x), constant(x)) < 0 : x < 0; }
Tensor relu(const Tensor& x) { return leaky_relu(x, 0); }
Tensor leaky_relu(const Tensor& x, double slope) {
  require(slope >= 0, "[leaky_relu] the slope is not negative, got {}", slope);
  return mpigrad::apply(Unary<LeakyRelu>{{{{.fused = {slope}}}}}, {x});
}
Tensor leaky_relu_adjoint(const Tensor& g, const Tensor& y, scalar::Fused fused, bool may_overwrite) {
  const bool in_place = may_overwrite && sole_owner(g);  // checked before the call copies the handle
  return mpigrad::apply(Binary<LeakyReluAdjoint>{{{{.fused = fused}}, in_place}}, {g, y});
}
Mask equal(const Tensor& a, const Tensor& b) { return Mask(compare<Equal>(a, b)); }
Mask not_equal(const Tensor& a, const Tensor& b) { return Mask(compare<NotEqual>(a, b)); }
Mask less(const Tensor& a, const Tensor& b) { return Mask(compare<Less>(a, b)); }
Mask less_equal(const Tensor& a, const Tensor& b) { return Mask(compare<LessEqual>(a, b)); }
Mask logical_and(const Tensor& a, const Tensor& b) { return Mask(compare<LogicalAnd>(a, b)); }
Mask logical_or(const Tensor& a, const Tensor& b) { return Mask(compare<LogicalOr>(a, b)); }
Mask logical_xor(const Tensor& a, const Tensor& b) { return Mask(compare<LogicalXor>(a, b)); }
Mask logical_not(const Tensor& a) {
  UseDevice device(a.device());
  return equal(a, constant(full(Shape{}, 0, a.dtype())));
}
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return apply_aligned(Where{}, Elementwise::nonlinear, {condition, promoted(beside(a, b), b), promoted(beside(b, a), a)});
}
Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (is_complex(x.dtype()) || is_complex(dtype)) return detail::cast_complex(x, dtype);
  return mpigrad::apply(Cast{.to = dtype}, {x});
}

}  // namespace mpigrad
