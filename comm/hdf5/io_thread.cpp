#include "comm/hdf5/io_thread.h"

namespace mpigrad {

JobQueue& io_thread() {
  // The library, opened first, is closed last: after the jobs that still wait when the process ends.
  static const bool opened = (hdf5::close_library_at_exit(), true);
  static JobQueue queue(opened ? 1 : 0);
  return queue;
}

}  // namespace mpigrad
