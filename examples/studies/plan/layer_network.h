#pragma once
// A network made of a layer file's layers, one after the other, so that networks that are written elsewhere can be laid out over
// ranks as ours are.

#include <memory>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/layers.h"
#include "models/nn/module.h"

namespace mpigrad::plan {

// Strides and padding are those without dilation that turn `in` into `out`, of several the ones with which the last window ends
// where the padded input does; groups and biases are told by the number of weights; group norm has 8 groups where the channels
// allow it; activations are ReLUs; `other` computes nothing. UsageError, with the name of the layer: one whose `in` is not
// the `out` of the one before it (networks with branches join by register_network()), or that no stride, padding or groups
// explain.
std::unique_ptr<nn::Module> make_network(const std::string& file, const std::vector<planner::Layer>& layers);
// Of one sample, [1, D, H, W, C].
Shape input_of(const std::vector<planner::Layer>& layers);

}  // namespace mpigrad::plan
