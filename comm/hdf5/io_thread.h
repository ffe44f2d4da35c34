#pragma once
// The one thread of a process that calls HDF5, which is not thread-safe (its parallel build never is). Jobs run one at a time in
// the order of submission.

#include "framework/base/job_queue.h"

namespace mpigrad {

namespace hdf5 {
// HDF5's own start; nothing in builds without it. Before MPI's, where that is possible: else MPI_Finalize ends HDF5, and the
// program crashes there if it has a file that could not be closed. Whether the program had not opened HDF5 before, so that its
// end is ours.
bool open_library();
void close_library_at_exit();
}  // namespace hdf5

JobQueue& io_thread();

}  // namespace mpigrad
