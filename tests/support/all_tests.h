#pragma once
// True if the long tests run, too.

#include <cstdlib>

namespace mpigrad::testing {

// `sh tests/run.sh --long NAME` sets MPIGRAD_TEST_ALL.
inline bool all_tests() { return std::getenv("MPIGRAD_TEST_ALL") != nullptr; }

}  // namespace mpigrad::testing
