#pragma once
// Whether the long tests run as well.

#include <cstdlib>

namespace mpigrad::testing {

// `sh tests/run.sh --long NAME` sets MPIGRAD_TEST_ALL.
inline bool all_tests() { return std::getenv("MPIGRAD_TEST_ALL") != nullptr; }

}  // namespace mpigrad::testing
