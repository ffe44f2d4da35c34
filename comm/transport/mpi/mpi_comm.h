#pragma once
// For programs that already run MPI: the one optional header of the library that includes mpi.h.

#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1  // the C++ bindings that MPI removed in 2012: needless symbols and warnings
#endif
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <memory>

#include "comm/transport/transport.h"

namespace mpigrad {

// A transport over the ranks of `communicator`. Collective over them. All traffic uses a private duplicate; the caller keeps its
// communicator. MPI must be initialised, and we do not finalise it. A SettingsError on all ranks if the environment's MPIGRAD_*
// variables differ between them (comm/transport/environment.h), or if the program was loaded with two MPI libraries.
std::shared_ptr<Transport> mpi_transport(MPI_Comm communicator);

// The communicator of an mpi transport (parallel HDF5 needs one). It belongs to the transport: use it only for calls that
// duplicate it. An Error for any other transport.
MPI_Comm mpi_communicator(const Transport& transport);

}  // namespace mpigrad
