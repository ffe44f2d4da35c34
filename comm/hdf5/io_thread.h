#pragma once
// The single thread of a process that calls HDF5, which is not thread-safe (its parallel build never is). Jobs run one at a time
// in the order of submission.

#include "framework/base/job_queue.h"

namespace mpigrad {

namespace hdf5 {
// Initialises HDF5; does nothing in builds without it. Must come before MPI's initialisation where possible: otherwise
// MPI_Finalize closes HDF5, and the program crashes there if it has a file that could not be closed. Returns true if the program
// had not opened HDF5 before, so that closing it is our task.
bool open_library();
void close_library_at_exit();
}  // namespace hdf5

JobQueue& io_thread();

}  // namespace mpigrad
