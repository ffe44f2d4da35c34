#pragma once
// Counts what operator new gives out, for tests and measurements of memory. Only programs that are linked with allocations.cpp.

#include <cstdint>

namespace mpigrad::testing {

// Bytes that this thread has requested from operator new, and those among them that are in use, with their largest number. Bytes
// that another thread frees count as in use here, and as negative there.
struct Allocations {
  std::int64_t requested = 0, live = 0, peak = 0;
};
Allocations& allocations_of_this_thread();
// False in programs with a sanitizer, whose operator new stays.
bool counts_allocations();

}  // namespace mpigrad::testing
