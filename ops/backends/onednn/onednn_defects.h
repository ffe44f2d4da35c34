#pragma once
// Problems that oneDNN computes wrongly without an error. Kernels of this library compute these problems instead.
// ops/precision.md lists the defects by version and instruction set. Needs no header of oneDNN.
//
// MPIGRAD_ONEDNN_DEFECTS=ignore switches these rules off, to examine another version. Problems of few outputs, problems for
// Winograd's filtering, and bfloat16 without its instructions still do not go to oneDNN.

#include "ops/backends/implementation.h"

namespace mpigrad::cpu::onednn {

// True for float32 convolutions whose results by oneDNN are wrong.
bool has_defect(Pass pass, const ConvProblem& p);
// True for float32 average pools whose results by oneDNN are wrong.
bool has_defect(const PoolProblem& p);

// True for bfloat16 convolutions that oneDNN computes correctly. The wrong problems have many causes, so the rule names
// the right problems. 3 x 3 x 3 with stride 1 or 2 is right. All of these conditions hold:
//   more than one tap, and one group;
//   along each axis an odd kernel, no dilation, stride <= (kernel + 1) / 2, and every input in a window;
//   along each axis kernel <= input (kernel < input where both sides are padded), and windows between those that begin in the
//   padding in front and those that end in the padding at the end;
//   for weight gradients, version < 207 (2.7): 3.0 to 3.13 were wrong, 2.7 was not tried.
bool right_in_bfloat16(int version, Pass pass, const ConvProblem& p);

}  // namespace mpigrad::cpu::onednn
