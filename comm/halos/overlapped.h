#pragma once
// Convolutions of a block and what lies around it. Not installed.

#include "comm/distributed/local_parts.h"
#include "ops/conv/conv.h"

namespace mpigrad::spatial {

// activation(conv(x, w) + bias) for this rank's outputs, as a local tensor. x is distributed, `plan` tells what its outputs read,
// and the paddings of `a` are those of the whole volume. w and bias are local already. The result has
// room for halos along dimension `room`, if that is not negative.
//
// Convolution is linear in x. Where the grid's Overlap allows it, the block itself is convolved while the planes around it
// travel, as if there were zeros in their place; what they add at the rim, slab by slab, is added when they are there. Backward
// they travel home while the block's own gradients are computed: that is the order of the tape, reversed.
Tensor windowed_conv(const Tensor& x, const WindowedPlan& plan, const Tensor& w, const Tensor& bias, Activation activation,
                     const ConvAttributes& a, int room);

}  // namespace mpigrad::spatial
