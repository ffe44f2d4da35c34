#pragma once
// What functions of tensors with split channels share. Not installed.
//
// Along an axis that splits channels, ranks that have their operands run each a problem of its own, with fewer channels. A view
// describes x like that: its channels are the rank's, and the axis has nothing to do with it.

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

// One grid axis of a product: where it cuts the channels of x and y and dimension `w_dimension` of w; no cuts where it does not.
struct ProductAxis {
  ChannelSplit split = ChannelSplit::none;
  std::vector<std::int64_t> x{}, y{}, w{};
  int w_dimension = -1;
};
// What a product of x and a weight does with channels, from the layouts of the operands; nothing has moved yet.
struct ProductPlan {
  std::vector<ProductAxis> axes{};  // of x's grid; none where no channels are split
  LayoutPtr x{};                    // of this rank's part of x, whose channels are the rank's
  LayoutPtr w{}, bias{};            // of the parameters beside x, where axes split channels; none for the bias of a sum
  Shape weight{};                   // of this rank's part
  std::int64_t groups = 1;          // of the part
  std::int64_t outputs = 0;         // channels of y on all ranks together, where axes split channels
  std::vector<int> replicated{};    // grid axes along which x is replicated: its cotangents are summed there
  int gathered = -1, cut = -1;      // the grid axis along which x's channels are gathered; the one along which they are cut
  bool idle = false;                // this rank has no group, and the part no channels, neither in nor out
  bool sums = false;                // parts are summed over ranks; bias and activation are of the sum
};
ProductPlan plan_product(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                         const ProductAttributes& attributes);
// This rank's operands. x has layout plan.x, the weight is local, the bias a parameter beside x (parameter_for).
struct ProductOperands {
  Tensor x, w, bias;
};
ProductOperands product_operands(const ProductPlan& plan, const Tensor& x, const Tensor& w, const Tensor& bias);
// What is made of the operands' product y: the sum over ranks, where parts are summed, with bias and activation.
Tensor whole_product(const ProductPlan& plan, Tensor y, const Tensor& bias, Activation activation);

}  // namespace mpigrad::spatial
