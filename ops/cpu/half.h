#pragma once
// bfloat16 and float16 in kernels that compute: the operands become float32, the float32 kernel runs, and its results are rounded
// once. No kernel is compiled for 16 bits.

#include "framework/op.h"

namespace mpigrad::ops {

bool any_half(Inputs in);
// Copies of 16-bit tensors as float32; others as they are.
Tensors widened(Inputs in);
// Like `out`, with float32 in the place of 16-bit types.
Tensors wide_outputs(Outputs out);
void narrow(Inputs wide, Outputs out);

// Whether op has been run so, which it is if an operand is of a 16-bit type.
template <class Op>
bool through_float32(const Op& op, Inputs in, Outputs out) {
  if (!any_half(in)) return false;
  const Tensors wide = widened(in);
  Tensors results = wide_outputs(out);
  op.run(Cpu{}, wide, results);
  narrow(results, out);
  return true;
}

}  // namespace mpigrad::ops
