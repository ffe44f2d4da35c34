#pragma once
// Whether ranks that should have the same parameters have them. Where a program goes around its layouts (`without_layout()`, or
// a weight that is used without `replicate`), each rank adds up its own gradients alone, and the weights drift apart.

#include <string_view>

#include "comm/communicator.h"
#include "framework/engine/parameter.h"

namespace mpigrad {

// Collective over the ranks of `transport`, which all have the same list: compares a hash of every parameter's bits, by one
// allgather of 8 bytes and a pass over the parameters (0.19 ms per MiB of float32), which come from a GPU first. The Error, the
// same on all ranks, begins with `what` and names the first parameter that differs and the ranks that hold each value. Of a
// parameter in blocks, by its layout, ranks with the same block are compared; then all ranks send 16 bytes for each parameter.
void require_same_parameters(std::string_view what, const Parameters& parameters, Transport& transport);

namespace detail {

// x has been replicated over comm: where `same` is on, remembered for the next steps of this thread.
void note_replicated(const Tensor& x, const Communicator& comm);

}  // namespace detail
}  // namespace mpigrad
