#pragma once
// Layers on distributed tensors with random attributes, for comparison with one rank and tests of adjoints.

#include <functional>
#include <string>
#include <vector>

#include "comm/distributed/distributed.h"
#include "tests/support/distributed.h"

namespace mpigrad::testing {

// A layer with its attributes, input and parameters; on plain tensors it computes the result of one rank.
struct LayerCase {
  std::string name;
  Shape input;
  std::vector<Shape> parameters;
  std::function<Tensor(const Tensors&)> run;  // in: x, parameters
  bool linear = false;                        // linear in x
};

// Random attributes; attributes that leave no output are drawn again.
LayerCase random_conv(Dice& dice);
LayerCase random_conv_transpose(Dice& dice);
LayerCase random_pool(Dice& dice, bool maximum);
LayerCase batch_norm_layer(Dice& dice);
LayerCase global_avg_pool_layer(Dice& dice);
LayerCase flatten_layer(Dice& dice);
LayerCase random_adaptive_pool(Dice& dice, bool maximum);
LayerCase row_norm_layer(Dice& dice);
// Variance, deviation, norm or cosine similarity over dimensions, some of which are split.
LayerCase statistics_layer(Dice& dice);
LayerCase roll_layer(Dice& dice);
// Several layers in sequence, so that the cuts of one output are those of the next input.
LayerCase network_layer(Dice& dice);

Tensors parameters_of(const LayerCase& layer, std::uint64_t seed, DType dtype = DType::float64);

// A random grid of the communicator's ranks with random cuts, occasionally with an axis along which the tensor is replicated.
LayoutPtr random_layout(const Communicator& comm, Dice& dice, const Shape& global);

// The adjoint test of every layer, `repeats` random cases of each, first and second order. Throws an Error that names the
// failure.
void check_layer_adjoints(const Communicator& comm, std::uint64_t repeats);

}  // namespace mpigrad::testing
