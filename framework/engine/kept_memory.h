#pragma once
// Finds out whether the elements that a tape keeps were overwritten between forward and backward. A vjp would compute with the
// new ones and return a wrong gradient.
//
// Steps of optimizers are always found: Storage counts them. Memory that a program wraps (wrap()) and overwrites is found by a
// hash of what the tape keeps of it, in builds without optimisation and with MPIGRAD_CHECKS=memory.

#include "framework/engine/tape.h"

namespace mpigrad::detail {

// Hashes what tapes keep of wrapped memory from now on, on all threads.
void check_wrapped_memory(bool check);

// Notes in an entry that is recorded what it keeps.
void note_kept_memory(Tape::Entry& entry);
// Error: what `entry` keeps has changed since.
void require_kept_memory(const Tape::Entry& entry);

}  // namespace mpigrad::detail
