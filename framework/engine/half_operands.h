#pragma once
// Operands of bfloat16 and float16 as float32 and back, on the CPU. Used inside the library only.

#include "framework/engine/op.h"

namespace mpigrad::detail {

// 16-bit tensors as float32: whether there are any; copies of operands; room for results, which are rounded to `out`.
bool any_half(Inputs in, Outputs out);
Tensors widened(Inputs in);
Tensors wide_outputs(Outputs out);
void narrow(Inputs wide, Outputs out);

}  // namespace mpigrad::detail
