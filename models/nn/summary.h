#pragma once
// Summary of a network as a table; works for any network, built or not, including layers of your own.

#include <string>
#include <vector>

#include "models/nn/layers.h"
#include "models/nn/module.h"

namespace mpigrad::nn {

// Layers in the order in which the network's function runs, for inputs of these shapes; after them, with kind "parameters" and
// the shape as `out`, the parameters of parts that record no layer, such as a user's own layer. Nothing is computed or
// communicated, and the network is unchanged: it may be built afterwards, or have been built for inputs of another size. Errors:
// any error that the network's function throws for such an input.
std::vector<LayerRecord> summarise(Module& net, const std::vector<Shape>& inputs);
// The summary as text lines with totals, for printing.
std::string summary(Module& net, const std::vector<Shape>& inputs);
inline std::string summary(Module& net, const Shape& input) { return summary(net, std::vector{input}); }

}  // namespace mpigrad::nn
