#pragma once
// The memory that is still available, so that a file that claims too large sizes gives an error with its name before anything is
// allocated.

#include <cstdint>
#include <string_view>

namespace mpigrad {

// Bytes that this process can still allocate: the available memory of the system including swap, or less if its control group or
// a limit on its address space allows less. An estimate, since other processes allocate, too. 2^63 - 1 if unknown.
std::int64_t available_host_bytes();

// Error "WHAT: ... bytes of memory are needed, ... are available" if they are not available. Requests below 64 MiB are not
// checked.
void require_host_memory(std::string_view what, double bytes);

}  // namespace mpigrad
