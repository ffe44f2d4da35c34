#pragma once
// Runs a planned convolution. Not installed.

#include "comm/halos/conv_plan.h"

namespace mpigrad::spatial {

// Runs the plan of plan_conv() for these operands: exchanges, the local convolution, the sum over ranks. With a pooling in the
// plan the result is a local tensor with the places that this rank's windows read.
//
// Convolution is linear in x. Where the grid's Overlap allows it, the block itself is convolved while the planes around it
// travel, with zeros in their place; after their arrival, their contribution at the rim is added slab by slab. In the backward
// pass the cotangents of these planes travel back while the block's own gradients are computed, because the tape runs in reverse
// order.
Tensor run_conv(const ConvPlan& plan, const Tensor& x, const Tensor& w, const Tensor& bias);

}  // namespace mpigrad::spatial
