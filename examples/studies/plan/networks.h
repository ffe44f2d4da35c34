#pragma once
// Networks that the planner knows by name. Add your own by one call, before the arguments are read:
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
  std::function<std::unique_ptr<nn::Module>()> make;  // a new one, not built
  Shape input;                                        // of one sample, [1, D, H, W, C]; images have D = 1
  std::string sentence;                               // description, for help
  // Optional, for planning: the same network with recomputation of its blocks; its objective of x (a partial sum); the program
  // that trains it, with the options that choose the network.
  std::function<std::unique_ptr<nn::Module>()> recomputing{};
  std::function<Tensor(nn::Module& net, const Tensor& x)> objective{};
  std::string trainer{};
  std::string extents_key{};  // key of the recipe's section data with the extents; empty: data have them
};

// cosmoflow, cosmoflow-mlperf, unet3d, unet3d-lbann, resnet50, vgg16, alexnet, and registered ones.
const std::map<std::string, Network>& networks();
// Replaces a network of the same name. Error: the input is not a single sample [1, D, H, W, C].
void register_network(const std::string& name, Network network);

// The network's input with extent `size` in every dimension whose extent is above 1; 0: unchanged.
Shape input_of(const Network& network, std::int64_t size);

// The layers of a network by name, or of a layer file (layer_file.h), whose name ends with .toml. UsageError: there is no such
// network, it does not accept that size, or `size` is given for a file, which has its own sizes.
std::vector<planner::Layer> layers_named(const std::string& network, std::int64_t size);

// The layers of a layer file are in sequence (layer_network.h). UsageError: as layers_named(), and a file whose layers make no
// network.
const Network& network_named(const std::string& name);
planner::Subject subject_named(const std::string& network, std::int64_t size);
// UsageError: errors of read_machine().
planner::Machine machine_of(const std::string& file);

}  // namespace mpigrad::plan
