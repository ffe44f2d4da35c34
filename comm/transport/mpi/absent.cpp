// Built without MPI.

#include "comm/transport/launcher.h"
#include "comm/transport/mpi/integer_comm.h"
#include "comm/transport/transport.h"
#include "framework/base/error.h"

namespace mpigrad {

bool mpi_available() { return false; }

std::string mpi_library_version() { return {}; }

std::shared_ptr<Transport> mpi_world(int*, char***) {
  fail(
      "[mpi] this build has no MPI: install MPICH (libmpich-dev) and configure with -Dmpi=enabled, or run with "
      "--transport threads --ranks P");
}

std::shared_ptr<Transport> mpi_transport_of_integer(int) {
  fail("[mpi] this build has no MPI: install MPICH (libmpich-dev) and configure with -Dmpi=enabled");
}

std::shared_ptr<Transport> mpi_transport_of_cartesian(int communicator, bool) { return mpi_transport_of_integer(communicator); }

int cartesian_dimensions(const Transport&) { return 0; }

}  // namespace mpigrad
