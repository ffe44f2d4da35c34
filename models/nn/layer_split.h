#pragma once
// Layouts of a layer's weights, derived from its LayerSplit and the layout of its input. Not installed.

#include <string>

#include "comm/distributed/channels.h"
#include "models/nn/module.h"

namespace mpigrad::nn {

// A layer's product: its weight is [out, ..., in/groups] or, for a transposed convolution, [in, ..., out/groups].
struct LayerProduct {
  Shape weight;
  std::int64_t out = 0, groups = 1;
  bool transposed = false;
};
struct ProductLayouts {
  LayoutPtr weight, bias;  // none: replicated
  SplitOutputs outputs{};
};
// `own` is the layer's choice, `network` the default for layers without one. For `whole` results the network's `filters` is
// replaced by `channels`, whose reduced sums are whole. Error: an axis that the grid does not have.
ProductLayouts product_layouts(const std::string& layer, const Tensor& x, const LayerProduct& product,
                               const std::optional<LayerSplit>& own, const LayerSplit& network, bool whole);
// x with its channels split like those of w along the same axis, where the product needs that.
Tensor cut_beside(const Tensor& x, const Tensor& w, const LayerProduct& product);

// The layout of a parameter with one value per channel of x; none where the channels are whole.
LayoutPtr layout_of_channels(const Tensor& x);

}  // namespace mpigrad::nn
