#pragma once
// How much memory can still be had, so that what a file claims is an error with a name before it is asked for.

#include <cstdint>
#include <string_view>

namespace mpigrad {

// Bytes that this process may still take: what the system has available, swap included, or less where a limit of its control
// group or on its address space is nearer. An estimate: other processes take memory, too. 2^63 - 1 where nothing tells.
std::int64_t available_host_bytes();

// Error "WHAT: ... bytes of memory are needed, ... are available" if so many are not. Below 64 MiB nobody is asked.
void require_host_memory(std::string_view what, double bytes);

}  // namespace mpigrad
