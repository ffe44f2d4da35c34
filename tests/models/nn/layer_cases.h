#pragma once
// Layers on distributed tensors with random attributes, for tests that compare them with one rank and test their adjoints.

#include <functional>
#include <string>
#include <vector>

#include "comm/distributed/distributed.h"
#include "tests/support/distributed.h"

namespace mpigrad::testing {

// A layer with its attributes, input and parameters; on plain tensors it is what one rank computes.
struct LayerCase {
  std::string name;
  Shape input;
  std::vector<Shape> parameters;
  std::function<Tensor(const Tensors&)> run;  // x, parameters
  bool linear = false;                        // in x
};

// Attributes at random; those that leave no output are drawn again.
LayerCase random_conv(Dice& dice);
LayerCase random_conv_transpose(Dice& dice);
LayerCase random_pool(Dice& dice, bool maximum);
LayerCase batch_norm_layer(Dice& dice);
LayerCase global_avg_pool_layer(Dice& dice);
LayerCase flatten_layer(Dice& dice);
LayerCase random_adaptive_pool(Dice& dice, bool maximum);
LayerCase row_norm_layer(Dice& dice);
// Variance, deviation, norm or cosine similarity over dimensions of which some are split.
LayerCase statistics_layer(Dice& dice);
LayerCase roll_layer(Dice& dice);
// Several layers in a row, so that the cuts of one are the input of the next.
LayerCase network_layer(Dice& dice);

Tensors parameters_of(const LayerCase& layer, std::uint64_t seed, DType dtype = DType::float64);

// Any grid of the communicator's ranks, any cuts, now and then an axis along which the ranks hold the same.
LayoutPtr random_layout(const Communicator& comm, Dice& dice, const Shape& global);

// The adjoint test of every layer, `repeats` random cases of each, first and second order. Throws what is wrong.
void check_layer_adjoints(const Communicator& comm, std::uint64_t repeats);

}  // namespace mpigrad::testing
