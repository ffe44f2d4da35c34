#pragma once
// Rounding in hardware: float32 operands of tensor cores, and elements in memory by their type.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "framework/tensor/half.h"

namespace mpigrad::emulation::vendor {

// TF32: 8 bits of exponent, 10 of fraction; to the nearest, ties to even.
inline float tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7F800000U) == 0x7F800000U) return x;
  return std::bit_cast<float>((bits + 0xFFF + (bits >> 13) % 2) & ~0x1FFFU);
}

enum class Element : std::uint8_t { float32, float64, float16, bfloat16 };
inline std::size_t size_of(Element type) { return type == Element::float64 ? 8 : type == Element::float32 ? 4 : 2; }
inline bool is_half(Element type) { return type == Element::float16 || type == Element::bfloat16; }

template <class Format>
double load_as(const void* memory, std::int64_t i) {
  Format value;
  std::memcpy(&value, static_cast<const std::byte*>(memory) + i * static_cast<std::int64_t>(sizeof(Format)), sizeof value);
  return value;
}
template <class Format, class T>
void store_as(void* memory, std::int64_t i, T x) {
  const auto value = static_cast<Format>(x);
  std::memcpy(static_cast<std::byte*>(memory) + i * static_cast<std::int64_t>(sizeof(Format)), &value, sizeof value);
}

// Element i; double represents every value of these types.
inline double load(Element type, const void* memory, std::int64_t i) {
  switch (type) {
    case Element::float32: return load_as<float>(memory, i);
    case Element::float64: return load_as<double>(memory, i);
    case Element::float16: return load_as<Float16>(memory, i);
    case Element::bfloat16: return load_as<BFloat16>(memory, i);
  }
  return 0;
}
template <class T>
void store(Element type, void* memory, std::int64_t i, T x) {
  switch (type) {
    case Element::float32: return store_as<float>(memory, i, x);
    case Element::float64: return store_as<double>(memory, i, x);
    case Element::float16: return store_as<Float16>(memory, i, x);
    case Element::bfloat16: return store_as<BFloat16>(memory, i, x);
  }
}
// x rounded to the type.
template <class T>
T rounded(Element type, T x) {
  switch (type) {
    case Element::float32: return static_cast<T>(static_cast<float>(x));
    case Element::float64: return x;
    case Element::float16: return static_cast<T>(static_cast<float>(Float16(x)));
    case Element::bfloat16: return static_cast<T>(static_cast<float>(BFloat16(x)));
  }
  return x;
}

}  // namespace mpigrad::emulation::vendor
