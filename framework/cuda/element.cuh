#pragma once
// Elements in kernels: 16-bit types are converted to float32 for arithmetic, and rounded with the GPU's own instructions.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "framework/tensor/half.h"

namespace mpigrad::cuda {

template <class T>
constexpr bool is_half_type = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
// The type of arithmetic on T.
template <class T>
using Compute = std::conditional_t<is_half_type<T>, float, T>;

template <class T>
__device__ inline Compute<T> load(T x) {
  if constexpr (std::is_same_v<T, Float16>) return __half2float(__ushort_as_half(x.bits()));
  else if constexpr (std::is_same_v<T, BFloat16>) return __uint_as_float(static_cast<unsigned>(x.bits()) << 16);
  else return x;
}
// Rounds to nearest, ties to even. From double it rounds once as well.
template <class T, class From>
__device__ inline T store(From x) {
  if constexpr (std::is_same_v<From, T>) {
    return x;
  } else if constexpr (is_half_type<T> && !std::is_same_v<From, float>) {
    return T(x);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16::from_bits(__bfloat16_as_ushort(__float2bfloat16_rn(x)));
  } else if constexpr (std::is_same_v<T, Float16>) {
    return Float16::from_bits(__half_as_ushort(__float2half_rn(x)));
  } else {
    return static_cast<T>(x);
  }
}

// V elements that are loaded and stored as one.
template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T of[V];
};

}  // namespace mpigrad::cuda
