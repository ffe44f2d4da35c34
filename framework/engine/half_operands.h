#pragma once
// Converts operands of bfloat16 and float16 to float32 and back, on the CPU. Used inside the library only.

#include "framework/engine/op.h"

namespace mpigrad::detail {

// any_half(): whether there are 16-bit tensors. widened(): float32 copies of the operands. wide_outputs(): float32 tensors for
// results. narrow(): rounds these to `out`.
bool any_half(Inputs in, Outputs out);
Tensors widened(Inputs in);
Tensors wide_outputs(Outputs out);
void narrow(Inputs wide, Outputs out);

}  // namespace mpigrad::detail
