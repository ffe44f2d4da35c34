#pragma once
// Communicators by the integers that Fortran programs have for them, for callers that do not include mpi.h.

#include <memory>

#include "comm/transport/transport.h"

namespace mpigrad {

// mpi_transport() of mpi_comm.h for the communicator whose integer in Fortran is `communicator`. Error: a build without MPI.
std::shared_ptr<Transport> mpi_transport_of_integer(int communicator);

// The same for a communicator with a Cartesian topology (MPI_Cart_create), with its ranks numbered row-major over the dimensions
// of the topology; if `reversed`, over the dimensions in reverse order, the last one first. Collective. Error: no such topology.
std::shared_ptr<Transport> mpi_transport_of_cartesian(int communicator, bool reversed);

// The number of dimensions with more than one rank in the Cartesian topology of an mpi transport; 0 without one.
int cartesian_dimensions(const Transport& transport);

}  // namespace mpigrad
