#ifndef MPIGRAD_FRAMEWORK_TENSOR_DTYPE_H
#define MPIGRAD_FRAMEWORK_TENSOR_DTYPE_H
// Element types.

#include <complex>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "framework/base/error.h"
#include "framework/tensor/half.h"

namespace mpigrad {

// uint16 is for data of files: it is stored, moved, sent, converted, and looked up as labels, but no op computes with it.
// An element of complex64 (complex128) is two float32 (float64), the real and the imaginary part; ops/complex/complex.h.
enum class DType : std::uint8_t {
  float32,
  float64,
  int64,
  int32,
  int16,
  uint8,
  boolean,
  bfloat16,
  float16,
  uint16,
  complex64,
  complex128
};

// Bytes per element.
constexpr std::int64_t size_of(DType type) {
  switch (type) {
    case DType::complex128: return 16;
    case DType::complex64:
    case DType::float64:
    case DType::int64: return 8;
    case DType::float32:
    case DType::int32: return 4;
    case DType::int16:
    case DType::bfloat16:
    case DType::float16:
    case DType::uint16: return 2;
    case DType::uint8:
    case DType::boolean: return 1;
  }
  return 0;
}

// "float32", "float64", ...: the name in the list above.
constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::int64: return "int64";
    case DType::int32: return "int32";
    case DType::int16: return "int16";
    case DType::uint8: return "uint8";
    case DType::boolean: return "boolean";
    case DType::bfloat16: return "bfloat16";
    case DType::float16: return "float16";
    case DType::uint16: return "uint16";
    case DType::complex64: return "complex64";
    case DType::complex128: return "complex128";
  }
  return "?";
}

// bfloat16 and float16 are stored and sent; arithmetic uses float32.
constexpr bool is_half(DType type) { return type == DType::bfloat16 || type == DType::float16; }
// The type in which arithmetic on `type` is done. Statistics of 16-bit tensors are stored in it.
constexpr DType computed_in(DType type) { return is_half(type) ? DType::float32 : type; }

// Real floating-point types.
constexpr bool is_floating(DType type) { return type == DType::float32 || type == DType::float64 || is_half(type); }
constexpr bool is_complex(DType type) { return type == DType::complex64 || type == DType::complex128; }
// Only floating-point and complex tensors carry derivatives.
constexpr bool is_differentiable(DType type) { return is_floating(type) || is_complex(type); }

// The type of the real and imaginary parts; a type that is not complex itself.
constexpr DType real_type(DType type) {
  return type == DType::complex64 ? DType::float32 : type == DType::complex128 ? DType::float64 : type;
}
// Numbers of type real_type() in one element.
constexpr std::int64_t parts_of(DType type) { return is_complex(type) ? 2 : 1; }
// The complex type with parts of a type: float32 or float64, also of their complex types. Error: other types.
constexpr DType complex_type(DType type) {
  if (real_type(type) == DType::float32) return DType::complex64;
  if (real_type(type) == DType::float64) return DType::complex128;
  fail("[dtype] complex numbers have parts of float32 or float64, not {}", name_of(type));
}

// The common type of two types: the wider of two integer types; float64 for float32 with float64; of complex types, also with
// float32 or float64, the complex type with parts of the wider type (Python array API standard 2024.12, type promotion). None for
// all other pairs of different types, for which the user calls cast(). Where functions take
// float32 with a 16-bit type (ops/elementwise/elementwise.h, mixed precision), this is not a promotion: float32 is rounded.
constexpr std::optional<DType> result_type(DType a, DType b) {
  if (a == b) return a;
  const auto is_integer = [](DType type) {
    return type == DType::int64 || type == DType::int32 || type == DType::int16 || type == DType::uint8;
  };
  const auto is_wide = [](DType type) { return type == DType::float32 || type == DType::float64; };
  if ((is_integer(a) && is_integer(b)) || (is_wide(a) && is_wide(b))) return size_of(a) > size_of(b) ? a : b;
  const auto is_wide_part = [&](DType type) { return is_wide(real_type(type)); };
  if (is_wide_part(a) && is_wide_part(b))  // one is complex
    return real_type(a) == DType::float64 || real_type(b) == DType::float64 ? DType::complex128 : DType::complex64;
  return std::nullopt;
}

// The element type for the C++ type T. T without one, such as unsigned int, does not compile.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::float32;
  else if constexpr (std::is_same_v<T, double>) return DType::float64;
  else if constexpr (std::is_same_v<T, std::int64_t>) return DType::int64;
  else if constexpr (std::is_same_v<T, std::int32_t>) return DType::int32;
  else if constexpr (std::is_same_v<T, std::int16_t>) return DType::int16;
  else if constexpr (std::is_same_v<T, std::uint8_t>) return DType::uint8;
  else if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  else if constexpr (std::is_same_v<T, BFloat16>) return DType::bfloat16;
  else if constexpr (std::is_same_v<T, Float16>) return DType::float16;
  else if constexpr (std::is_same_v<T, std::uint16_t>) return DType::uint16;
  else if constexpr (std::is_same_v<T, std::complex<float>>) return DType::complex64;
  else if constexpr (std::is_same_v<T, std::complex<double>>) return DType::complex128;
  else static_assert(sizeof(T) == 0, "no DType for this type");
}

// Calls f with a value of the C++ type: visit_floating(type, [&](auto zero) { using T = decltype(zero); ... }).
//
//   visit_floating        float32, float64                    kernels that compute; a 16-bit type is refused
//   visit_any_floating    these, bfloat16 and float16         code that only converts and rounds
//   visit_integral        booleans, integers except uint16    kernels that compute; uint16 is refused
//   visit_any_integral    these and uint16                    code that looks labels up, or only converts
//   visit_arithmetic      visit_floating, visit_integral      kernels that compute
//   visit_any_arithmetic  visit_any_floating, visit_integral  a GPU's kernels, which widen and round
//   visit_stored          visit_floating, visit_any_integral  code that reads samples and labels in the types of files
//   visit_complex         complex64, complex128               kernels of complex numbers
//   visit_any             all but the complex types           code that only moves and converts
//   visit_element         all                                 code that fills memory
//
// Each returns what f returns. Error: a type that is not in its row.
template <class F>
decltype(auto) visit_floating(DType type, F&& f) {
  switch (type) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16:
    case DType::float16: fail("[dtype] nothing computes with {} here; cast to float32 first", name_of(type));
    case DType::int64:
    case DType::int32:
    case DType::int16:
    case DType::uint8:
    case DType::boolean:
    case DType::uint16:
    case DType::complex64:
    case DType::complex128: break;
  }
  fail("[dtype] {} is not a floating-point type; float32 or float64 is needed", name_of(type));
}
template <class F>
decltype(auto) visit_any_floating(DType type, F&& f) {
  if (type == DType::bfloat16) return f(BFloat16{});
  if (type == DType::float16) return f(Float16{});
  return visit_floating(type, f);
}
template <class F>
decltype(auto) visit_integral(DType type, F&& f) {
  switch (type) {
    case DType::int64: return f(std::int64_t{});
    case DType::int32: return f(std::int32_t{});
    case DType::int16: return f(std::int16_t{});
    case DType::uint8: return f(std::uint8_t{});
    case DType::boolean: return f(false);
    case DType::uint16: fail("[dtype] nothing computes with {} here; cast to int32 first", name_of(type));
    case DType::float32:
    case DType::float64:
    case DType::complex64:
    case DType::complex128: fail("[dtype] {} is not taken here; view_as_real() gives real and imaginary parts", name_of(type));
    case DType::bfloat16:
    case DType::float16: break;
  }
  fail("[dtype] {} is not a type of integers or booleans", name_of(type));
}
template <class F>
decltype(auto) visit_any_integral(DType type, F&& f) {
  return type == DType::uint16 ? f(std::uint16_t{}) : visit_integral(type, f);
}
template <class F>
decltype(auto) visit_arithmetic(DType type, F&& f) {
  return is_floating(type) ? visit_floating(type, f) : visit_integral(type, f);
}
template <class F>
decltype(auto) visit_any_arithmetic(DType type, F&& f) {
  return is_floating(type) ? visit_any_floating(type, f) : visit_integral(type, f);
}
template <class F>
decltype(auto) visit_stored(DType type, F&& f) {
  return is_floating(type) ? visit_floating(type, f) : visit_any_integral(type, f);
}
template <class F>
decltype(auto) visit_any(DType type, F&& f) {
  return is_floating(type) ? visit_any_floating(type, f) : visit_any_integral(type, f);
}
template <class F>
decltype(auto) visit_complex(DType type, F&& f) {
  require(is_complex(type), "[dtype] {} is not a complex type", name_of(type));
  return type == DType::complex64 ? f(std::complex<float>{}) : f(std::complex<double>{});
}
template <class F>
decltype(auto) visit_element(DType type, F&& f) {
  return is_complex(type) ? visit_complex(type, f) : visit_any(type, f);
}

}  // namespace mpigrad

#endif
