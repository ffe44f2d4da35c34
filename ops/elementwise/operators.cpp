#include "ops/elementwise/number.h"

#include <cmath>
#include <limits>

#include "framework/tensor/dtype.h"
#include "ops/complex/complex_operands.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/elementwise_ops.h"

namespace mpigrad {

Tensor Number::like(std::string_view op, const Tensor& x) const {
  const DType dtype = x.dtype();
  UseDevice device(x.device());
  if (is_differentiable(dtype)) return constant(full(Shape{}, value_, dtype));
  if (dtype == DType::boolean) {
    require(kind_ == Kind::boolean, "[{}] {} with booleans: cast(x, DType::int64) first; x is {}", op, value_, x);
    return constant(full(Shape{}, value_, dtype));
  }
  require(kind_ != Kind::floating, "[{}] {} with integers, which cannot hold it: cast(x, DType::float64) first; x is {}", op,
          value_, x);
  bool fits = true;
  visit_any_integral(dtype, [&](auto zero) {
    using T = decltype(zero);
    fits = integer_ >= static_cast<std::int64_t>(std::numeric_limits<T>::lowest()) &&
           integer_ <= static_cast<std::int64_t>(std::numeric_limits<T>::max());
  });
  require(fits, "[{}] {} is out of the range of {}; x is {}", op, integer_, name_of(dtype), x);
  constexpr std::int64_t exact = std::int64_t{1} << 53;  // integers up to this are exact in a double
  if (-exact <= integer_ && integer_ <= exact) return constant(full(Shape{}, static_cast<double>(integer_), dtype));
  constexpr std::int64_t half = std::int64_t{1} << 32;
  const auto number = [&](std::int64_t value) { return constant(full(Shape{}, static_cast<double>(value), dtype)); };
  return constant(number(integer_ / half) * number(half) + number(integer_ % half));
}

namespace {

bool floating(const Tensor& x) { return is_differentiable(x.dtype()); }
// c x by affine(): adding -0 leaves every number as it is; adding 0 would turn -0 into 0.
Tensor scaled(const Tensor& x, double c) { return affine(x, c, -0.0); }

}  // namespace

Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }

Tensor operator+(const Tensor& x, Number c) { return floating(x) ? affine(x, 1, c.value()) : add(x, c.like("add", x)); }
Tensor operator-(const Tensor& x, Number c) {
  return floating(x) ? affine(x, 1, -c.value()) : subtract(x, c.like("subtract", x));
}
Tensor operator*(const Tensor& x, Number c) { return floating(x) ? scaled(x, c.value()) : multiply(x, c.like("multiply", x)); }
Tensor operator/(const Tensor& x, Number c) {
  if (is_complex(x.dtype())) return view_as_complex(view_as_real(x) / c);
  return floating(x) ? apply(ops::Unary<ops::DivideBy>{{{{.c = c.value()}}}}, {x}) : divide(x, c.like("divide", x));
}
Tensor operator%(const Tensor& x, Number c) { return remainder(x, c); }
Tensor operator+(Number c, const Tensor& x) { return x + c; }
Tensor operator-(Number c, const Tensor& x) {
  return floating(x) ? affine(x, -1, c.value()) : subtract(c.like("subtract", x), x);
}
Tensor operator*(Number c, const Tensor& x) { return x * c; }
Tensor operator/(Number c, const Tensor& x) {
  return is_floating(x.dtype()) ? apply(ops::Unary<ops::DivideNumber>{{{{.c = c.value()}}}}, {x})
                                : divide(c.like("divide", x), x);
}
Tensor operator%(Number c, const Tensor& x) { return remainder(c, x); }
Tensor operator-(const Tensor& x) { return negate(x); }

Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }
Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
Tensor operator^(const Tensor& a, const Tensor& b) { return bitwise_xor(a, b); }
Tensor operator~(const Tensor& x) { return bitwise_invert(x); }
Tensor operator&(const Tensor& x, Number c) { return bitwise_and(x, c); }
Tensor operator|(const Tensor& x, Number c) { return bitwise_or(x, c); }
Tensor operator^(const Tensor& x, Number c) { return bitwise_xor(x, c); }

Mask operator==(const Tensor& a, const Tensor& b) { return Mask(equal(a, b)); }
Mask operator!=(const Tensor& a, const Tensor& b) { return Mask(not_equal(a, b)); }
Mask operator<(const Tensor& a, const Tensor& b) { return Mask(less(a, b)); }
Mask operator<=(const Tensor& a, const Tensor& b) { return Mask(less_equal(a, b)); }
Mask operator>(const Tensor& a, const Tensor& b) { return Mask(less(b, a)); }
Mask operator>=(const Tensor& a, const Tensor& b) { return Mask(less_equal(b, a)); }
Mask operator==(const Tensor& x, Number c) { return Mask(equal(x, c.like("equal", x))); }
Mask operator!=(const Tensor& x, Number c) { return Mask(not_equal(x, c.like("not_equal", x))); }
Mask operator<(const Tensor& x, Number c) { return Mask(less(x, c.like("less", x))); }
Mask operator<=(const Tensor& x, Number c) { return Mask(less_equal(x, c.like("less_equal", x))); }
Mask operator>(const Tensor& x, Number c) { return Mask(less(c.like("greater", x), x)); }
Mask operator>=(const Tensor& x, Number c) { return Mask(less_equal(c.like("greater_equal", x), x)); }

#define MPIGRAD_WITH_NUMBERS(name)                                             \
  Tensor name(const Tensor& x, Number c) { return name(x, c.like(#name, x)); } \
  Tensor name(Number c, const Tensor& x) { return name(c.like(#name, x), x); }
MPIGRAD_NUMBER_FUNCTIONS(MPIGRAD_WITH_NUMBERS)
#undef MPIGRAD_WITH_NUMBERS

Tensor pow(const Tensor& x, Number exponent) {
  if (!floating(x)) return pow(x, exponent.like("pow", x));
  if (exponent.value() == 1) return x;
  if (exponent.value() == 2) return square(x);
  return apply(ops::Unary<ops::PowScalar>{{{{.p = exponent.value()}}}}, {x});
}
Tensor pow(Number base, const Tensor& x) { return pow(base.like("pow", x), x); }
Tensor where(const Tensor& condition, const Tensor& a, Number b) { return where(condition, a, b.like("where", a)); }
Tensor where(const Tensor& condition, Number a, const Tensor& b) { return where(condition, a.like("where", b), b); }
Tensor clamp(const Tensor& x, Number low, Number high) {
  require(low.value() <= high.value(), "[clamp] low {} is above high {}", low.value(), high.value());
  if (!floating(x)) return minimum(maximum(x, low), high);
  return apply(ops::Unary<ops::Clamp>{{{{.low = low.value(), .high = high.value()}}}}, {x});
}

}  // namespace mpigrad
