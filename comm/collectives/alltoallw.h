#pragma once
// MPI's alltoallw: every block is a tensor of its own, of any shape and type.

#include <vector>

#include "comm/collectives/collectives.h"

namespace mpigrad {

// blocks[s] goes to rank s; result[s] comes from rank s. `receive` are the types of the results; the ranks tell each other where
// it is left out.  The transpose swaps the two lists. Integer blocks travel and carry no derivative. Recorded, as messages are,
// where a floating-point block goes or comes, constant or not: a rank that hands in integers alone cannot know.
std::vector<Tensor> alltoallw(const std::vector<Tensor>& blocks, const Communicator& comm, Types receive = {});

namespace ops {

// The last input has no elements. It says that this is recorded, whatever the blocks are.
struct AllToAllW {
  Communicator comm;
  Types receive;
  static constexpr OpTraits traits() { return {.name = "alltoallw", .communicates = true}; }
  Types infer(Inputs in) const;
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
