#pragma once
// Every communication op of comm/collectives.h and comm/invariant.h as a function of what all ranks hold. Run on the `threads`
// transport by collectives_test.cpp and under mpiexec by adjoint_mpi_test.cpp. Collective; the first wrong value throws.

#include "comm/communicator.h"
#include "framework/dtype.h"

namespace mpigrad::testing {

// Values alone: integers have no derivative, and are not recorded.
void check_collective_values(const Communicator& comm, std::uint64_t seed, DType dtype);
// Values, adjoint and second order. `few`: each op once, where calls are expensive.
void check_collectives(const Communicator& comm, std::uint64_t seed, DType dtype, bool few = false);

}  // namespace mpigrad::testing
