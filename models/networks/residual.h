#pragma once
// The residual blocks of ResNets (He et al. 2015), for images and volumes.

#include <memory>

#include "models/nn/sequential.h"

namespace mpigrad::nn {

// activation(norm(conv(x))) without bias, with He-normal weights; kernels are odd and padded by half their extent. Makes two
// parts of `parent`, whose names end in `number`: conv1, norm1.
struct ConvNormAttributes {
  std::int64_t out = 0;
  Triple kernel = 3;
  BatchNormAttributes norm{};  // except its activation
};
class ConvNorm {
 public:
  using Attributes = ConvNormAttributes;
  ConvNorm(Module& parent, const std::string& number, const ConvNormAttributes& attributes);
  Tensor operator()(const Tensor& x, Activation activation = Activation::none, const Triple& stride = 1);

 private:
  Conv3d conv_;
  BatchNorm norm_;
};

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
// conv1 has kernel 1. x' is x, or norm(conv1(x, stride)) where the number of channels or the extents change. The stride is on the
// bottleneck's large kernel ("v1.5"). Odd kernels, padded by half their extent, give both branches the same blocks on a grid.
class ResidualBlock : public Module {
 public:
  ResidualBlock(Module& parent, const std::string& name, const ResidualAttributes& attributes = {});
  // [N, D, H, W, C] -> [N, D', H', W', out()], D' = ceil(D / stride)
  Tensor operator()(const Tensor& x, const Triple& stride);
  Tensor operator()(const Tensor& x) override { return (*this)(x, 1); }
  std::int64_t out() const { return a_.bottleneck ? 4 * a_.width : a_.width; }

 private:
  ResidualAttributes a_;
  List<ConvNorm> branch_;
  std::unique_ptr<ConvNorm> shortcut_;
};

}  // namespace mpigrad::nn
