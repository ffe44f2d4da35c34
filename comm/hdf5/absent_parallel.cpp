// Replaces parallel.cpp where HDF5 or the library is built without MPI.

#include "comm/hdf5/detail.h"

namespace mpigrad::hdf5 {

bool parallel_calls_here() { return false; }

bool has_parallel_driver(const Transport&) { return false; }

Handle parallel_access(const Transport&) { fail("[hdf5] HDF5 was built without MPI"); }

}  // namespace mpigrad::hdf5
