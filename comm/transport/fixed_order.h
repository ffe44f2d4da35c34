#pragma once
// Sums in the order of ranks wherever a program is to repeat its bits (comm/transport/summation_mode.h says what that costs).

namespace mpigrad {

// Whether communicators that this process makes from now on add up so, whatever MPIGRAD_REDUCTIONS says besides; those that are
// made of others on the way, and on GPUs, too. All ranks ask for the same, before they make the first of which they ask it.
void set_fixed_order(bool fixed);

}  // namespace mpigrad
