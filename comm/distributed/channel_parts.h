#pragma once
// Code that the functions of tensors with split channels share. Not installed.
//
// Along a grid axis that splits channels, each rank first gets its operands and then runs a separate problem with fewer channels.
// A view is x as an operand of that problem: it has only the rank's channels, and counts as replicated along the axis.

#include <initializer_list>

#include "comm/distributed/channels.h"
#include "framework/tensor/layout.h"
#include "ops/elementwise/activation.h"

namespace mpigrad::spatial {

// True if the last dimension of a distributed x is split, or if a parameter used with x is.
bool splits_channels(const Tensor& x, std::initializer_list<Tensor> parameters);
// own_channels() returns the view of this rank's channels. with_channels_of() is the inverse: y, whose channels are those of a
// view of x, becomes a tensor with channels split as in x. Without a split both return the tensor itself.
Tensor own_channels(const Tensor& x);
Tensor with_channels_of(const Tensor& x, const Tensor& y);
// This rank's block of w, a parameter used with x, whose dimension `dimension` corresponds to x's channels. w without a layout is
// the same on all ranks; the result then differs only along the axis that splits x's channels.
Tensor block_beside(const char* op, const Tensor& x, const Tensor& w, int dimension = 0);
// This rank's block of w, a parameter used with x, in a layout on x's grid. A w that is replicated is so on any grid of the same
// ranks; a w that ranks store in parts is gathered first. Replicated values are cut without a message, and their cotangents are
// gathered.
Tensor block_in(const Tensor& x, const Tensor& w, const LayoutPtr& layout);
// Error, reported for `op`: x is a partial sum.
void require_no_share(const char* op, const Tensor& x);

// One grid axis of a product: the cuts of the channels of x and y and of dimension `w_dimension` of w; empty where the axis does
// not cut them.
struct ProductAxis {
  ChannelSplit split = ChannelSplit::none;
  std::vector<std::int64_t> x{}, y{}, w{};
  int w_dimension = -1;
};
// How a product of x and a weight treats channels, from the layouts of the operands; nothing has moved yet.
struct ProductPlan {
  std::vector<ProductAxis> axes{};  // of x's grid; empty where no channels are split
  LayoutPtr x{};                    // of this rank's part of x, whose channels are the rank's
  LayoutPtr w{}, bias{};            // of the parameters, where axes split channels; the bias is null if sums
  Shape weight{};                   // shape of this rank's part of the weight
  std::int64_t groups = 1;          // groups of this rank's part
  std::int64_t outputs = 0;         // channels of y on all ranks together, where axes split channels
  std::vector<int> replicated{};    // grid axes along which x is replicated: its cotangents are summed over them
  int gathered = -1, cut = -1;      // the grid axis along which x's channels are gathered; the one along which they are cut
  bool idle = false;                // this rank has no group: its part has no input and no output channels
  bool sums = false;                // the parts are partial sums; bias and activation are applied to the sum over ranks
};
ProductPlan plan_product(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                         const ProductAttributes& attributes);
// This rank's operands. x has layout plan.x, the weight is local, the bias is a parameter used with x (parameter_for).
struct ProductOperands {
  Tensor x, w, bias;
};
ProductOperands product_operands(const ProductPlan& plan, const Tensor& x, const Tensor& w, const Tensor& bias);
// The result of the product from y, the product of the operands: summed over ranks where parts are partial sums, with bias and
// activation.
Tensor whole_product(const ProductPlan& plan, Tensor y, const Tensor& bias, Activation activation);

}  // namespace mpigrad::spatial
