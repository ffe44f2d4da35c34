#include "comm/hdf5/detail.h"
#include "comm/transport/mpi/mpi_comm.h"

namespace mpigrad::hdf5 {

bool has_parallel_driver(const Transport& transport) { return transport.underlying().name() == "mpi"; }

bool parallel_calls_here() {
  int provided = 0;
  MPI_Query_thread(&provided);
  return provided < MPI_THREAD_SERIALIZED;
}

Handle parallel_access(const Transport& transport) {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  require(H5Pset_fapl_mpio(access, mpi_communicator(transport), MPI_INFO_NULL) >= 0, "[hdf5] the parallel driver failed: {}",
          error_text());
  return access;
}

}  // namespace mpigrad::hdf5
