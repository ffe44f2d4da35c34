#pragma once
// MPI's alltoallw: every block is a separate tensor of any shape and type.

#include <vector>

#include "comm/collectives/collectives.h"

namespace mpigrad {

// Sends blocks[s] to rank s; result[s] comes from rank s. `receive` lists the types of the results; where it is left out, the
// ranks exchange the types first. The transpose swaps the two lists. Integer blocks are moved and carry no derivative. The call
// is recorded, as messages are, where a floating-point block is sent or received, constant or not: a rank that sends only
// integers cannot know whether the others record.
std::vector<Tensor> alltoallw(const std::vector<Tensor>& blocks, const Communicator& comm, Types receive = {});

namespace ops {

// The last input has no elements. Its purpose is to have the op recorded, whatever the blocks are.
struct AllToAllW {
  Communicator comm;
  Types receive;
  static constexpr OpTraits traits() { return {.name = "alltoallw", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
