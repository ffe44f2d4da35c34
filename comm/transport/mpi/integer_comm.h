#pragma once
// Communicators by the integers that Fortran programs have for them, for callers that do not include mpi.h.

#include <memory>

#include "comm/transport/transport.h"

namespace mpigrad {

// mpi_transport() of mpi_comm.h for the communicator whose integer in Fortran is `communicator`. Error: a build without MPI.
std::shared_ptr<Transport> mpi_transport_of_integer(int communicator);

}  // namespace mpigrad
