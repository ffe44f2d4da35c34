#pragma once
// Problems that oneDNN computes wrongly without an error. Kernels of this library compute these problems instead. ops/README.md
// lists the defects by version and instruction set. Needs no header of oneDNN.
//
// MPIGRAD_ONEDNN_DEFECTS=ignore gives all problems to oneDNN, to test another version of it.

#include "ops/cpu/implementation.h"

namespace mpigrad::cpu::onednn {

// True for float32 convolutions whose results by oneDNN are wrong.
bool has_defect(Pass pass, const ConvProblem& p);
// True for float32 average pools whose results by oneDNN are wrong.
bool has_defect(const PoolProblem& p);

// True for bfloat16 convolutions that oneDNN of this major version computes correctly by AMX. The wrong ones have many causes, so
// this names the right ones: more than one tap, odd kernels, no dilation, no groups, strides of at most half a window, windows
// that read every input, and inputs at least as long as the window (longer, if they are padded on both sides). 3 x 3 x 3 at
// stride 1 or 2 is one. Weight gradients are right in version 2 only.
bool right_by_amx(int version, Pass pass, const ConvProblem& p);

}  // namespace mpigrad::cpu::onednn
