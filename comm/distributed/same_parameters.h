#pragma once
// Checks that parameters are equal on the ranks where they should be. Where a program bypasses its layouts (`without_layout()`,
// or a weight that is used without `replicate`), each rank accumulates only its own gradients, and the weights drift apart.

#include <string_view>

#include "comm/communicator.h"
#include "framework/engine/parameter.h"

namespace mpigrad {

// Compares a hash of every parameter's bits over the ranks of `transport`. Collective; all ranks pass the same list. The cost is
// one allgather of 8 bytes and a pass over the parameters (0.19 ms per MiB of float32), which are first copied from a GPU. Error,
// the same on all ranks: begins with `what` and names the first parameter that differs and the ranks that hold each value. If a
// parameter has a layout with blocks, ranks with the same block are compared; then all ranks send 16 bytes for each parameter.
void require_same_parameters(std::string_view what, const Parameters& parameters, Transport& transport);

namespace detail {

// Records that x has been replicated over comm: with the check `same`, the next steps of this thread compare it.
void note_replicated(const Tensor& x, const Communicator& comm);

}  // namespace detail
}  // namespace mpigrad
