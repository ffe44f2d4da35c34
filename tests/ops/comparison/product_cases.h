#pragma once
// Products with random attributes whose operands are split at random, channels among other dimensions.

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
  // Of x, w and the bias, which may be none.
  std::function<Tensor(const Tensors& in, const SplitOutputs& outputs)> run;
};
ProductCase random_conv_product(Dice& dice);
ProductCase random_conv_transpose_product(Dice& dice);
ProductCase random_linear_product(Dice& dice);

// How it is split. Without a layout a parameter is plain.
struct ProductSplit {
  std::string scheme;
  GridPtr grid;
  LayoutPtr x, w, bias;
  SplitOutputs outputs;
};
// On a random grid with axes sample, depth, channel and filter of that many ranks in all.
ProductSplit random_split(const Communicator& comm, const ProductCase& product, Dice& dice);

}  // namespace mpigrad::testing
