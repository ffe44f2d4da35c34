#ifndef MPIGRAD_OPS_ELEMENTWISE_NUMBER_H
#define MPIGRAD_OPS_ELEMENTWISE_NUMBER_H
// C++ numbers as operands, and the operators of tensors. A number takes the element type of the tensor beside it, as the Python
// array API standard has it: x + 1 of an int32 tensor is int32, 2 * x of a float32 tensor is float32.

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
              : std::integral<T>    ? Kind::integer
                                    : Kind::floating) {}

  constexpr double value() const { return value_; }
  constexpr bool is_integer() const { return kind_ == Kind::integer; }
  constexpr std::int64_t integer() const { return integer_; }
  // A constant without dimensions, of the type and on the device of x. Refuses what x's type does not hold: fractions and numbers
  // out of range beside integers, other numbers than true and false beside booleans.
  Tensor like(std::string_view op, const Tensor& x) const;

 private:
  enum class Kind : std::uint8_t { boolean, integer, floating };
  double value_;
  std::int64_t integer_;  // exact where value_ is rounded
  Kind kind_;
};

// What comparisons give: a boolean tensor, which is not a condition of C++. `if (a == b)` does not compile, because it would ask
// whether there is a tensor; all(a == b) and any(a == b) are tensors with one boolean, and .item() its value.
class Mask : public Tensor {
 public:
  explicit Mask(Tensor x) : Tensor(std::move(x)) {}
  explicit operator bool() const = delete;
};

// ---- arithmetic

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

// The handle on the left becomes that of a new tensor. Other handles of the old one, and what a tape has recorded of it, stay
// what they were: nothing is written into its memory.
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

Tensor operator&(const Tensor& a, const Tensor& b);
Tensor operator|(const Tensor& a, const Tensor& b);
Tensor operator^(const Tensor& a, const Tensor& b);
Tensor operator~(const Tensor& x);

// ---- comparisons

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

Tensor maximum(const Tensor& x, Number c);
Tensor maximum(Number c, const Tensor& x);
Tensor minimum(const Tensor& x, Number c);
Tensor minimum(Number c, const Tensor& x);
Tensor pow(const Tensor& x, Number exponent);
Tensor pow(Number base, const Tensor& x);
Tensor remainder(const Tensor& x, Number c);
Tensor remainder(Number c, const Tensor& x);
Tensor floor_divide(const Tensor& x, Number c);
Tensor floor_divide(Number c, const Tensor& x);
Tensor where(const Tensor& condition, const Tensor& a, Number b);
Tensor where(const Tensor& condition, Number a, const Tensor& b);
Tensor clamp(const Tensor& x, Number low, Number high);  // derivative 1 inside and on the bounds

}  // namespace mpigrad

#endif
