#pragma once
// The part of the toolkit's float16 that this project's conversions use.

#include "framework/tensor/half.h"

struct __half {
  unsigned short bits;
};
inline __half __float2half_rn(float x) { return {mpigrad::Float16(x).bits()}; }
inline float __half2float(__half x) { return mpigrad::Float16::from_bits(x.bits); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
