#include "comm/hdf5/io_thread.h"

namespace mpigrad {

JobQueue& io_thread() {
  // HDF5 is opened first and therefore closed last: after the jobs that are still queued when the process ends.
  static const bool opened = (hdf5::close_library_at_exit(), true);
  static JobQueue queue(opened ? 1 : 0);
  return queue;
}

}  // namespace mpigrad
