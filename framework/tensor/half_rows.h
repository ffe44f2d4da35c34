#pragma once
// Converts rows of 16-bit numbers to float32 and back, with the vector units of the processor. Used inside the library only.

#include <cstdint>

#include "framework/tensor/half.h"

namespace mpigrad::detail {

void convert(const BFloat16* from, float* to, std::int64_t n);
void convert(const Float16* from, float* to, std::int64_t n);
void convert(const float* from, BFloat16* to, std::int64_t n);
void convert(const float* from, Float16* to, std::int64_t n);

}  // namespace mpigrad::detail
