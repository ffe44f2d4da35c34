#pragma once
// The part of the toolkit's bfloat16 that this project's conversions use.

#include "framework/tensor/half.h"

struct __nv_bfloat16 {
  unsigned short bits;
};
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {mpigrad::BFloat16(x).bits()}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
