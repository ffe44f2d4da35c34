#pragma once
// The memory that is still available, so that a file that claims too large sizes gives an error with its name before anything is
// allocated.

#include <cstdint>
#include <string_view>

namespace mpigrad {

// Bytes that each rank can still allocate, where this machine has so many processes of so many ranks: its part of the available
// memory of the system including swap, of what the control group allows, and of what the limits of this process leave (RLIMIT_AS,
// RLIMIT_DATA). An estimate, since other processes allocate, too. 2^63 - 1 if unknown.
std::int64_t available_host_bytes(std::int64_t processes = 1, std::int64_t ranks_of_process = 1);

// Error "WHAT: ... bytes of memory are needed, ... are available" if they are not available. Requests below 64 MiB are not
// checked.
void require_host_memory(std::string_view what, double bytes);

}  // namespace mpigrad
