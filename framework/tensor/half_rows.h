#pragma once
// Rows and tensors of 16-bit numbers as float32 and back, by the vector units that are there. Used inside the library only.

#include <cstdint>

#include "framework/engine/op.h"
#include "framework/tensor/half.h"

namespace mpigrad::detail {

void convert(const BFloat16* from, float* to, std::int64_t n);
void convert(const Float16* from, float* to, std::int64_t n);
void convert(const float* from, BFloat16* to, std::int64_t n);
void convert(const float* from, Float16* to, std::int64_t n);

// 16-bit tensors as float32: whether there are any; copies of operands; room for results, which are rounded to `out`.
bool any_half(Inputs in, Outputs out);
Tensors widened(Inputs in);
Tensors wide_outputs(Outputs out);
void narrow(Inputs wide, Outputs out);

}  // namespace mpigrad::detail
