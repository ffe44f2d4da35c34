#pragma once
// Properties of a network's layers for cost models, read from the code that trains it.

#include <array>
#include <string>
#include <vector>

#include "models/nn/module.h"

namespace mpigrad::planner {

// One layer, for one sample. Elements and floating-point operations are doubles, because sums exceed 64-bit integers.
struct Layer {
  std::string name, kind;          // kind as in tables of --describe: conv, linear, max_pool, ...
  double inputs = 0, outputs = 0;  // elements of |x| and |y|
  double weights = 0;              // elements, biases included
  double forward_flops = 0, backward_flops = 0;
  std::array<std::int64_t, 3> in_extents{1, 1, 1}, out_extents{1, 1, 1}, kernel{1, 1, 1};
  std::int64_t in_channels = 0, out_channels = 0;  // features if there are no spatial axes
  bool has_product() const { return kind == "conv" || kind == "conv_transpose" || kind == "linear"; }
};

// The layers in the order in which they run. `input` is that of one sample, [1, D, H, W, C]. The network is unchanged: it may be
// built afterwards. Errors: those of the network for such an input.
std::vector<Layer> read_layers(nn::Module& net, const Shape& input);

}  // namespace mpigrad::planner
