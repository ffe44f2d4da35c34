#pragma once
// The residual blocks of ResNets (He et al. 2015), for images and volumes.

#include "models/nn/layers.h"

namespace mpigrad::nn {

struct ResidualAttributes {
  std::int64_t width = 64;  // channels of the convolutions; a bottleneck gives four times as many
  bool bottleneck = false;
  Triple kernel = 3;        // odd; {1, 3, 3} for images
  bool zero_start = false;  // the last gamma starts at 0 (Goyal et al. 2017): the block begins as its shortcut
  BatchNormAttributes norm{};
};

// Basic:      relu(x' + norm(conv(relu(norm(conv(x, stride))))))                        width -> width channels
// Bottleneck: relu(x' + norm(conv1(relu(norm(conv(relu(norm(conv1(x))), stride))))))    width -> 4 width channels
//
// conv1 has kernel 1. x' is x; where the number of channels or extents change it is norm(conv1(x, stride)). With the stride on
// the bottleneck's large kernel it is "v1.5". Odd kernels with half of them as padding give both branches the same cuts on a
// grid.
class ResidualBlock : public Module {
 public:
  ResidualBlock(Module& parent, const std::string& name, const ResidualAttributes& attributes = {});
  // [N, D, H, W, C] -> [N, D', H', W', out()], D' = ceil(D / stride)
  Tensor operator()(const Tensor& x, const Triple& stride);
  Tensor operator()(const Tensor& x) override { return (*this)(x, 1); }
  std::int64_t out() const { return a_.bottleneck ? 4 * a_.width : a_.width; }

 private:
  ResidualAttributes a_;
};

// activation(norm(conv(x))) without bias, He-normal weights; kernels are odd and padded by half of themselves. `name` ends
// in a number, the norm's name in the same: conv1, norm1.
struct ConvNormAttributes {
  std::int64_t out = 0;
  Triple kernel = 3, stride = 1;
  BatchNormAttributes norm{};  // but for its activation
  Activation activation = Activation::none;
};
Tensor conv_norm(Module& parent, const std::string& number, const Tensor& x, const ConvNormAttributes& attributes);

}  // namespace mpigrad::nn
