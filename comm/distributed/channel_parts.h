#pragma once
// What functions of tensors with split channels share. Not installed.
//
// Along an axis that splits channels, ranks that have their operands run each a problem of its own, with fewer channels. A view
// describes x like that: its channels are the rank's, and the axis has nothing to do with it. So the functions call themselves.

#include <functional>
#include <initializer_list>

#include "comm/distributed/channels.h"
#include "framework/tensor/layout.h"
#include "ops/elementwise/activation.h"

namespace mpigrad::spatial {

// Whether the last dimension of a distributed x is split, or a parameter beside it.
bool splits_channels(const Tensor& x, std::initializer_list<Tensor> parameters);
// The view of this rank's channels, and the way back: y, whose channels are those of a view of x, as x is split. Without a split
// the tensors themselves.
Tensor own_channels(const Tensor& x);
Tensor with_channels_of(const Tensor& x, const Tensor& y);
// This rank's block of w, a parameter beside x, whose dimension `dimension` goes with x's channels; w without a layout is the
// same on all ranks, and so is the result, but along the axis that splits x's channels.
Tensor block_beside(const char* op, const Tensor& x, const Tensor& w, int dimension = 0);
// Error, for `op`: a partial sum.
void require_no_share(const char* op, const Tensor& x);

// Whether a product has to do with split channels.
bool splits_product(const Tensor& x, const Tensor& w, const Tensor& bias, const SplitOutputs& outputs);
// The product of parts of x, w and the bias, of as many groups.
using PartProduct =
    std::function<Tensor(const Tensor& x, const Tensor& w, const Tensor& bias, std::int64_t groups, Activation activation)>;
Tensor product_of_parts(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                        const ProductAttributes& attributes, const PartProduct& part);

}  // namespace mpigrad::spatial
