#pragma once
// What a network consists of, as a table; of any network, built or not, layers of one's own included.

#include <string>
#include <vector>

#include "models/nn/layers.h"
#include "models/nn/module.h"

namespace mpigrad::nn {

struct SummaryRow {
  std::string name, kind;  // kind "parameters": of what records no layer of its own, such as a layer of the user's
  Shape out;               // [N, ...], global; of "parameters" the shape
  std::int64_t parameters = 0;
  double flops = 0;  // forward, of one rank with the whole input
};

// In the order in which the network's function runs, for an input of this shape. Nothing is computed or communicated, and the
// network is as before: it may be built afterwards, or have been built for inputs of another size. Errors: what the network's
// function throws for such an input.
std::vector<SummaryRow> summarise(Module& net, const std::vector<Shape>& inputs);
// The same as lines, with sums: for printing.
std::string summary(Module& net, const std::vector<Shape>& inputs);
inline std::string summary(Module& net, const Shape& input) { return summary(net, std::vector{input}); }

}  // namespace mpigrad::nn
