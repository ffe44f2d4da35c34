#pragma once
// Detects that elements kept by a tape were overwritten between forward and backward. A vjp would compute with the new elements
// and return a wrong gradient.
//
// Steps of optimizers, and writes that a program makes by mutable_data() or announces by note_write(), are always found: Storage
// counts them. Other writes to memory of the program (Tensor::over()) are found by a hash of the kept elements, on CPUs, in
// builds without optimisation and with MPIGRAD_CHECKS=memory.

#include "framework/engine/tape.h"

namespace mpigrad::detail {

// From now on tapes of all threads hash the program's memory that they keep (or, if false, do not).
void check_foreign_memory(bool check);

// Notes the kept elements (write counts and hashes) in an entry that is being recorded.
void note_kept_memory(Tape::Entry& entry);
// Error: elements that `entry` keeps have changed since.
void require_kept_memory(const Tape::Entry& entry);

}  // namespace mpigrad::detail
