#pragma once
// Products with random attributes and randomly split operands, with channels among the split dimensions.

#include <functional>
#include <string>

#include "comm/distributed/distributed.h"
#include "tests/support/distributed.h"

namespace mpigrad::testing {

struct ProductCase {
  std::string name;
  Shape x, w;
  std::int64_t groups = 1, out = 1;
  bool transposed = false, bias = false;
  // in: x, w and the bias, if there is one.
  std::function<Tensor(const Tensors& in, const SplitOutputs& outputs)> run;
};
ProductCase random_conv_product(Dice& dice);
ProductCase random_conv_transpose_product(Dice& dice);
ProductCase random_linear_product(Dice& dice);

// The layouts of a product. A parameter without a layout is not distributed.
struct ProductSplit {
  std::string scheme;
  GridPtr grid;
  LayoutPtr x, w, bias;
  SplitOutputs outputs;
};
// A layout on a random grid with axes sample, depth, channel and filter of this total number of ranks.
ProductSplit random_split(const Communicator& comm, const ProductCase& product, Dice& dice);

}  // namespace mpigrad::testing
