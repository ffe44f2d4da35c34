#pragma once
// Weights with PyTorch's names and order of dimensions. From our names to PyTorch's,
//
//   conv1.weight [K, d, h, w, C]            conv1.weight [K, C, d, h, w]; of transposed convolutions, too
//   linear1.weight [out, cells x C]         linear1.weight [out, C x cells], where it takes a flattened volume
//   norm1.gamma, beta                       norm1.weight, bias
//   norm1.running_mean, running_variance    norm1.running_mean, running_var
//
// and for ResNets for images the names of torchvision: stage2.block1.conv3 is layer2.0.conv3, norm3 is bn3, conv_shortcut and
// norm_shortcut are downsample.0 and downsample.1, classifier is fc; kernels are [K, C, h, w].

#include <string>
#include <vector>

#include "framework/optim/optimizer.h"

namespace mpigrad::weights {

struct NamePair {
  std::string ours, theirs;  // ours begins with "parameters/" or "buffers/"
  Shape shape;               // theirs
  // The order of our dimensions in theirs, after ours are split into the shape `split`; empty: the same order.
  Shape split{};
  std::vector<int> order{};
};

// For the parameters and buffers of one network.
std::vector<NamePair> pytorch_names(const std::vector<NamedTensor>& network);

// Converts one tensor to PyTorch's order and back.
Tensor to_pytorch(const NamePair& pair, const Tensor& ours);
Tensor from_pytorch(const NamePair& pair, const Tensor& theirs, const Shape& ours);

}  // namespace mpigrad::weights
