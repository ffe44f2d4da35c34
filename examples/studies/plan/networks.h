#pragma once
// Networks that the planner knows by name. One of one's own joins by one call, before the arguments are read:
//
//   plan::register_network("mine", {[] { return std::make_unique<Mine>(); }, {1, 64, 64, 64, 2}, "what it is"});

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/layers.h"
#include "examples/studies/plan/planner/search/search.h"
#include "models/nn/module.h"

namespace mpigrad::plan {

struct Network {
  std::function<std::unique_ptr<nn::Module>()> make;  // a fresh one, not built
  Shape input;                                        // of one sample, [1, D, H, W, C]; images have D = 1
  std::string sentence;                               // what it is, for help
  // What planning knows more: the same network that keeps the ends of its blocks and computes them again; what it is trained
  // with, a share of the objective of x; and the program that trains it, with the options that choose it.
  std::function<std::unique_ptr<nn::Module>()> recomputing{};
  std::function<Tensor(nn::Module& net, const Tensor& x)> objective{};
  std::string trainer{};
  std::string extents_key{};  // of section data of its recipe, which says the extents; empty: its data do
};

// cosmoflow, cosmoflow-mlperf, unet3d, unet3d-lbann, resnet50, vgg16, alexnet, and those that were registered.
const std::map<std::string, Network>& networks();
// Replaces one of the same name. An Error if the input is no single sample [1, D, H, W, C].
void register_network(const std::string& name, Network network);

// The network's input with `size` places in every dimension that has more than one; 0: as it is.
Shape input_of(const Network& network, std::int64_t size);

// The layers of a network by name, or of a layer file (layer_file.h), whose name ends with .toml. UsageError: there is no such
// network, or it cannot be of that size, or `size` is given for a file, which says the sizes itself.
std::vector<planner::Layer> layers_named(const std::string& network, std::int64_t size);

// Those of a layer file are one after the other (layer_network.h). UsageError: as layers_named() says, and a file whose layers
// make no network.
const Network& network_named(const std::string& name);
planner::Subject subject_named(const std::string& network, std::int64_t size);
// UsageError: what read_machine() says.
planner::Machine machine_of(const std::string& file);

}  // namespace mpigrad::plan
