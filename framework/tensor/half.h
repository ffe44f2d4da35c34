#ifndef MPIGRAD_FRAMEWORK_TENSOR_HALF_H
#define MPIGRAD_FRAMEWORK_TENSOR_HALF_H
// bfloat16 and float16 (binary16 of IEEE 754) as two bytes of storage. They convert to float32 implicitly, and arithmetic is in
// float32; the conversion back is explicit and rounds once, to nearest, ties to even. Subnormals are exact, NaN stays NaN.

#include <bit>
#include <concepts>
#include <cstdint>

namespace mpigrad {
namespace detail {

// Rounds to odd: an inexact result has an odd last bit, so that rounding it again, to fewer digits, gives the same as rounding x
// once. (S. Boldo and G. Melquiond, "When double rounding is odd", 2005.)
constexpr float rounded_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const double back = nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (back == x || x != x || bits % 2 == 1) return nearest;
  const double beyond = x < 0 ? x - back : back - x;  // > 0: the nearest is farther from 0 than x
  return std::bit_cast<float>(beyond > 0 ? bits - 1 : bits + 1);
}
constexpr double rounded_to_odd(std::int64_t x) {
  constexpr std::int64_t exact = std::int64_t{1} << 53;
  if (-exact <= x && x <= exact) return static_cast<double>(x);
  return static_cast<double>((x >> 11) | static_cast<std::int64_t>((x & 0x7FF) != 0)) * 2048;
}

struct BFloat16Format {  // the upper half of a float32
  static constexpr float decode(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static constexpr std::uint16_t encode(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16) % 2) >> 16, quiet = (bits >> 16) | 0x40;
    return static_cast<std::uint16_t>(x != x ? quiet : rounded);
  }
};

struct Float16Format {  // sign, 5 bits of exponent, 10 of fraction
  static constexpr float decode(std::uint16_t bits) {
    const std::uint32_t magnitude = bits & 0x7FFFU, sign = (bits & 0x8000U) << 16, shifted = magnitude << 13;
    // The bias grows from 15 to 127. Subnormals: set as the fraction of 2^-14, which is then subtracted.
    constexpr std::uint32_t smallest_normal = 113U << 23;
    const float small = std::bit_cast<float>(smallest_normal | shifted) - std::bit_cast<float>(smallest_normal);
    const std::uint32_t normal = shifted + (112U << 23), special = shifted | (255U << 23);
    const std::uint32_t value = magnitude >= 0x7C00 ? special : magnitude < 0x400 ? std::bit_cast<std::uint32_t>(small) : normal;
    return std::bit_cast<float>(value | sign);
  }
  static constexpr std::uint16_t encode(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU, sign = (bits >> 16) & 0x8000U;
    // The last digit of 0.5 is the subnormals' unit, 2^-24: the addition rounds.
    const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - (126U << 23);
    const std::uint32_t normal = (magnitude - (112U << 23) + 0xFFF + (magnitude >> 13) % 2) >> 13;
    const std::uint32_t quiet = 0x7E00U | ((magnitude >> 13) & 0x3FFU), infinity = 0x7C00;
    constexpr std::uint32_t overflow = 0x477FF000;  // 65520, half way between 65504 and the next number of a wider range
    const std::uint32_t value = x != x ? quiet : magnitude >= overflow ? infinity : magnitude < (113U << 23) ? small : normal;
    return static_cast<std::uint16_t>(value | sign);
  }
};

template <class Format>
class Half {
 public:
  Half() = default;
  explicit constexpr Half(float x) : bits_(Format::encode(x)) {}
  explicit constexpr Half(double x) : Half(rounded_to_odd(x)) {}
  template <std::integral T>
  explicit constexpr Half(T x) : Half(rounded_to_odd(static_cast<std::int64_t>(x))) {}
  static constexpr Half from_bits(std::uint16_t bits) {
    Half x{};
    x.bits_ = bits;
    return x;
  }

  constexpr std::uint16_t bits() const { return bits_; }
  constexpr operator float() const { return Format::decode(bits_); }

 private:
  std::uint16_t bits_;
};

}  // namespace detail

using BFloat16 = detail::Half<detail::BFloat16Format>;
using Float16 = detail::Half<detail::Float16Format>;
static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

}  // namespace mpigrad

#endif
