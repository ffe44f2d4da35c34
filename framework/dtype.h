#pragma once
// Element types.

#include <cstdint>
#include <string_view>

#include "framework/error.h"

namespace mpigrad {

enum class DType : std::uint8_t { float32, float64, int64, int32, int16, uint8, boolean };

constexpr std::int64_t size_of(DType type) {
  switch (type) {
    case DType::float64:
    case DType::int64: return 8;
    case DType::float32:
    case DType::int32: return 4;
    case DType::int16: return 2;
    case DType::uint8:
    case DType::boolean: return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::int64: return "int64";
    case DType::int32: return "int32";
    case DType::int16: return "int16";
    case DType::uint8: return "uint8";
    case DType::boolean: return "boolean";
  }
  return "?";
}

// Only floating-point tensors carry derivatives.
constexpr bool is_floating(DType type) { return type == DType::float32 || type == DType::float64; }

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::float32;
  else if constexpr (std::is_same_v<T, double>) return DType::float64;
  else if constexpr (std::is_same_v<T, std::int64_t>) return DType::int64;
  else if constexpr (std::is_same_v<T, std::int32_t>) return DType::int32;
  else if constexpr (std::is_same_v<T, std::int16_t>) return DType::int16;
  else if constexpr (std::is_same_v<T, std::uint8_t>) return DType::uint8;
  else if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  else static_assert(sizeof(T) == 0, "no DType for this type");
}

// Calls f with a value of the C++ type: visit_floating(type, [&](auto zero) { using T = decltype(zero); ... }).
template <class F>
decltype(auto) visit_floating(DType type, F&& f) {
  switch (type) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    default: fail("[dtype] {} is not a floating-point type; float32 or float64 is needed", name_of(type));
  }
}

template <class F>
decltype(auto) visit_any(DType type, F&& f) {
  switch (type) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::int64: return f(std::int64_t{});
    case DType::int32: return f(std::int32_t{});
    case DType::int16: return f(std::int16_t{});
    case DType::uint8: return f(std::uint8_t{});
    case DType::boolean: return f(false);
  }
  fail("[dtype] unknown element type {}", static_cast<int>(type));
}

}  // namespace mpigrad
