#include "comm/hdf5/detail.h"
#include "comm/transport/mpi/mpi_comm.h"

namespace mpigrad::hdf5 {

Handle parallel_access(const Transport& transport) {
  int provided = 0;
  MPI_Query_thread(&provided);
  require(provided >= MPI_THREAD_SERIALIZED,
          "[hdf5] parallel files are written from the I/O thread: initialise MPI with MPI_THREAD_SERIALIZED or higher");
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  require(H5Pset_fapl_mpio(access, mpi_communicator(transport), MPI_INFO_NULL) >= 0, "[hdf5] the parallel driver failed: {}",
          error_text());
  return access;
}

}  // namespace mpigrad::hdf5
