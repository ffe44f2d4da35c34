#pragma once
// The one thread of a process that calls HDF5, which is not thread-safe (its parallel build never is). Jobs run one at a time in
// the order of submission.

#include "framework/job_queue.h"

namespace mpigrad {

namespace hdf5 {
// HDF5's own start; nothing in builds without it.
void open_library();
}  // namespace hdf5

JobQueue& io_thread();

}  // namespace mpigrad
