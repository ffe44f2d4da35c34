#pragma once
// The three convolutions in bfloat16 with the processor's own instructions (AMX, else AVX512-BF16). Products are added up in
// float32 and rounded once; subnormal numbers count as 0. W is BFloat16 or float: float weights are rounded on their way into the
// kernel's own format, and their gradients are not rounded. A function returns false without writing anything if the processor
// has no such instructions, or if oneDNN is slow or not trusted with the problem (ops/backends/onednn/onednn_defects.h). The
// caller then computes in float32, as it does for float16.

#include "framework/tensor/half.h"
#include "ops/conv/conv_kernels.h"

namespace mpigrad::cpu::native {

template <class W>
bool conv_forward(const ConvProblem&, const BFloat16* x, const W* w, BFloat16* y, const Epilogue& = {});
template <class W>
bool conv_data(const ConvProblem&, const BFloat16* gy, const W* w, BFloat16* gx);
template <class W>
bool conv_weight(const ConvProblem&, const BFloat16* x, const BFloat16* gy, W* gw);

}  // namespace mpigrad::cpu::native
