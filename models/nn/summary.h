#pragma once
// What a network consists of, as a table; of any network, built or not, layers of one's own included.

#include <string>
#include <vector>

#include "models/nn/layers.h"
#include "models/nn/module.h"

namespace mpigrad::nn {

// Layers in the order in which the network's function runs, for inputs of these shapes; behind them, of kind "parameters" and
// with their shape as `out`, those of parts that record no layer, such as a layer of the user's. Nothing is computed or
// communicated, and the network is as before: it may be built afterwards, or have been built for inputs of another size. Errors:
// what the network's function throws for such an input.
std::vector<LayerRecord> summarise(Module& net, const std::vector<Shape>& inputs);
// The same as lines, with sums: for printing.
std::string summary(Module& net, const std::vector<Shape>& inputs);
inline std::string summary(Module& net, const Shape& input) { return summary(net, std::vector{input}); }

}  // namespace mpigrad::nn
