#pragma once
// Where a layer with weights is cut, from what it is asked to do (LayerSplit) and the layout of its input. Not installed.

#include <string>

#include "comm/distributed/channels.h"
#include "models/nn/module.h"

namespace mpigrad::nn {

// A layer's product: its weight is [out, ..., in/groups] or, of a transposed convolution, [in, ..., out/groups].
struct LayerProduct {
  Shape weight;
  std::int64_t out = 0, groups = 1;
  bool transposed = false;
};
struct ProductLayouts {
  LayoutPtr weight, bias;  // none: the same on all ranks
  SplitOutputs outputs{};
};
// `own` is the layer's choice, `network` that of a layer without one. Where results are to be `whole` the network's filters are
// channels, whose sums are. Error: an axis that the grid does not have.
ProductLayouts product_layouts(const std::string& layer, const Tensor& x, const LayerProduct& product,
                               const std::optional<LayerSplit>& own, const LayerSplit& network, bool whole);
// x with its channels cut as those of w are along the same axis, where the product needs that.
Tensor cut_beside(const Tensor& x, const Tensor& w, const LayerProduct& product);

// The layout of a parameter of x's channels; none where these are whole.
LayoutPtr layout_of_channels(const Tensor& x);

}  // namespace mpigrad::nn
