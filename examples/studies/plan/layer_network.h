#pragma once
// A network made from the layers of a layer file, in sequence, so that networks that are not written with this library can be
// laid out over ranks.

#include <memory>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/layers.h"
#include "models/nn/module.h"

namespace mpigrad::plan {

// Strides and padding are those without dilation that turn `in` into `out`; if several do, those with which the last window ends
// where the padded input does. Groups and biases follow from the number of weights; group norm has 8 groups if the channels allow
// it; activations are ReLUs; `other` computes nothing. UsageError, with the name of the layer: its `in` is not the `out` of the
// layer before it (networks with branches are added by register_network()), or no stride, padding or groups explain it.
std::unique_ptr<nn::Module> make_network(const std::string& file, const std::vector<planner::Layer>& layers);
// The input of one sample, [1, D, H, W, C].
Shape input_of(const std::vector<planner::Layer>& layers);

}  // namespace mpigrad::plan
