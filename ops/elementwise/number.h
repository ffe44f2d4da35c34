#ifndef MPIGRAD_OPS_ELEMENTWISE_NUMBER_H
#define MPIGRAD_OPS_ELEMENTWISE_NUMBER_H
// C++ numbers as operands, and the operators of tensors. A number takes the element type of the tensor operand, as in the Python
// array API standard: x + 1 of an int32 tensor is int32, 2 * x of a float32 tensor is float32.

#include <concepts>
#include <string_view>

#include "framework/tensor/tensor.h"

namespace mpigrad {

class Number {
 public:
  template <class T>
  requires(std::integral<T> ||
           std::floating_point<T>) constexpr Number(T value)  // NOLINT: implicit, so that x + 1 is x + Number(1)
      : value_(static_cast<double>(value)), integer_(std::integral<T> ? static_cast<std::int64_t>(value) : 0),
        kind_(std::same_as<T, bool> ? Kind::boolean
              : is_int64(value)     ? Kind::integer
                                    : Kind::floating) {}

  constexpr double value() const { return value_; }
  constexpr bool is_integer() const { return kind_ == Kind::integer; }
  constexpr std::int64_t integer() const { return integer_; }
  // A constant without dimensions, with the type and device of x. Refuses values that x's type cannot hold: fractions and numbers
  // out of range for integers, and numbers other than true and false for booleans.
  Tensor like(std::string_view op, const Tensor& x) const;

 private:
  enum class Kind : std::uint8_t { boolean, integer, floating };  // an integer above the range of int64 is floating
  template <class T>
  static constexpr bool is_int64(T value) {
    if constexpr (std::unsigned_integral<T> && sizeof(T) == 8) return value <= static_cast<T>(INT64_MAX);
    else return std::integral<T>;
  }
  double value_;
  std::int64_t integer_;  // exact where value_ is rounded
  Kind kind_;
};

// The result of a comparison: a boolean tensor, which is not a condition of C++. `if (a == b)` does not compile, because it would
// test whether there is a tensor; all(a == b) and any(a == b) are tensors with one boolean, and .item() is its value.
class Mask : public Tensor {
 public:
  explicit Mask(Tensor x) : Tensor(std::move(x)) {}
  explicit operator bool() const = delete;
};

// ---- arithmetic

// add(), subtract(), multiply(), divide(), remainder() and negate() of ops/elementwise/elementwise.h, with their errors, also
// with a number for an operand. Errors with numbers: a value that the type of x cannot hold; adding a number to a partial sum.
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);  // of integers it rounds towards zero: divide()
Tensor operator%(const Tensor& a, const Tensor& b);  // has the sign of b: remainder()
Tensor operator+(const Tensor& x, Number c);
Tensor operator-(const Tensor& x, Number c);
Tensor operator*(const Tensor& x, Number c);
Tensor operator/(const Tensor& x, Number c);
Tensor operator%(const Tensor& x, Number c);
Tensor operator+(Number c, const Tensor& x);
Tensor operator-(Number c, const Tensor& x);
Tensor operator*(Number c, const Tensor& x);
Tensor operator/(Number c, const Tensor& x);
Tensor operator%(Number c, const Tensor& x);
Tensor operator-(const Tensor& x);
inline Tensor operator+(const Tensor& x) { return x; }

// The handle on the left becomes the handle of a new tensor. Other handles of the old tensor, and its entries on a tape, are
// unchanged: nothing is written into its memory.
template <class T>
Tensor& operator+=(Tensor& x, const T& y) {
  return x = x + y;
}
template <class T>
Tensor& operator-=(Tensor& x, const T& y) {
  return x = x - y;
}
template <class T>
Tensor& operator*=(Tensor& x, const T& y) {
  return x = x * y;
}
template <class T>
Tensor& operator/=(Tensor& x, const T& y) {
  return x = x / y;
}
template <class T>
Tensor& operator%=(Tensor& x, const T& y) {
  return x = x % y;
}

// ---- bits of integers, and booleans

// bitwise_and(), bitwise_or(), bitwise_xor() and bitwise_invert(); of booleans the logical operations. Errors: floating-point
// elements, a number that the type of x cannot hold.
Tensor operator&(const Tensor& a, const Tensor& b);
Tensor operator|(const Tensor& a, const Tensor& b);
Tensor operator^(const Tensor& a, const Tensor& b);
Tensor operator~(const Tensor& x);
Tensor operator&(const Tensor& x, Number c);
Tensor operator|(const Tensor& x, Number c);
Tensor operator^(const Tensor& x, Number c);
inline Tensor operator&(Number c, const Tensor& x) { return x & c; }
inline Tensor operator|(Number c, const Tensor& x) { return x | c; }
inline Tensor operator^(Number c, const Tensor& x) { return x ^ c; }

// ---- comparisons

// equal(), not_equal(), less() and so on: a boolean per element. Errors: those of the functions, a number that the type of x
// cannot hold.
Mask operator==(const Tensor& a, const Tensor& b);
Mask operator!=(const Tensor& a, const Tensor& b);
Mask operator<(const Tensor& a, const Tensor& b);
Mask operator<=(const Tensor& a, const Tensor& b);
Mask operator>(const Tensor& a, const Tensor& b);
Mask operator>=(const Tensor& a, const Tensor& b);
Mask operator==(const Tensor& x, Number c);
Mask operator!=(const Tensor& x, Number c);
Mask operator<(const Tensor& x, Number c);
Mask operator<=(const Tensor& x, Number c);
Mask operator>(const Tensor& x, Number c);
Mask operator>=(const Tensor& x, Number c);
inline Mask operator==(Number c, const Tensor& x) { return x == c; }
inline Mask operator!=(Number c, const Tensor& x) { return x != c; }
inline Mask operator<(Number c, const Tensor& x) { return x > c; }
inline Mask operator<=(Number c, const Tensor& x) { return x >= c; }
inline Mask operator>(Number c, const Tensor& x) { return x < c; }
inline Mask operator>=(Number c, const Tensor& x) { return x <= c; }

// ---- functions of a tensor and a number

// x^exponent and base^x; integers as in pow() of two tensors. NaN for a negative base with an exponent that is not whole. Error:
// a number that the type of x cannot hold.
Tensor pow(const Tensor& x, Number exponent);
Tensor pow(Number base, const Tensor& x);
// clang-format off
// In either order: maximum(x, 3) and maximum(3, x).
#define MPIGRAD_NUMBER_FUNCTIONS(X) \
  X(maximum) X(minimum) X(remainder) X(floor_divide) X(atan2) X(hypot) X(copysign) X(nextafter) X(logaddexp) \
  X(bitwise_and) X(bitwise_or) X(bitwise_xor) X(bitwise_left_shift) X(bitwise_right_shift)
#define MPIGRAD_WITH_NUMBERS(name) Tensor name(const Tensor& x, Number c); Tensor name(Number c, const Tensor& x);
// clang-format on
MPIGRAD_NUMBER_FUNCTIONS(MPIGRAD_WITH_NUMBERS)
#undef MPIGRAD_WITH_NUMBERS
Tensor where(const Tensor& condition, const Tensor& a, Number b);
Tensor where(const Tensor& condition, Number a, const Tensor& b);
Tensor clamp(const Tensor& x, Number low, Number high);  // derivative 1 inside and on the bounds

namespace detail {
template <>
struct InMessage<Mask> : InMessage<Tensor> {};
}  // namespace detail
}  // namespace mpigrad

template <>
struct fmt::formatter<mpigrad::Mask> : fmt::formatter<mpigrad::Tensor> {};

#endif
