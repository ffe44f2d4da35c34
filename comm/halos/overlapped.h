#pragma once
// Runs a planned convolution. Not installed.

#include "comm/halos/conv_plan.h"

namespace mpigrad::spatial {

// What plan_conv() planned for these operands: exchanges, the local convolution, the sum over ranks. With a pooling in the plan
// the result is a local tensor, of the places that this rank's windows read.
//
// Convolution is linear in x. Where the grid's Overlap allows it, the block itself is convolved while the planes around it
// travel, as if there were zeros in their place; what they add at the rim, slab by slab, is added when they are there. Backward
// they travel home while the block's own gradients are computed: that is the order of the tape, reversed.
Tensor run_conv(const ConvPlan& plan, const Tensor& x, const Tensor& w, const Tensor& bias);

}  // namespace mpigrad::spatial
