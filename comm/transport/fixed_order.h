#pragma once
// Sums in the order of ranks, for programs whose results must repeat bit for bit (costs: comm/transport/summation_mode.h).

namespace mpigrad {

// Sets whether communicators that this process makes from now on add up in the order of ranks, whatever else MPIGRAD_REDUCTIONS
// says. This includes communicators derived from others, and GPUs. All ranks must call it with the same value, before they make
// the first communicator concerned.
void set_fixed_order(bool fixed);

}  // namespace mpigrad
