// Replaces parallel.cpp where HDF5 or the library is built without MPI.

#include "comm/hdf5/detail.h"

namespace mpigrad::hdf5 {

bool parallel_calls_here() { return false; }

Handle parallel_access(const Transport& transport) {
  fail("[hdf5] {} ranks cannot write one file: HDF5 was built without MPI (install libhdf5-mpich-dev)", transport.size());
}

}  // namespace mpigrad::hdf5
