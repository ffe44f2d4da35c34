#include "comm/transport/waited.h"

namespace mpigrad::detail {

Waited& waited_of_this_thread() {
  static thread_local Waited waited;
  return waited;
}

int& WaitTimer::depth_of_this_thread() {
  static thread_local int depth = 0;
  return depth;
}

}  // namespace mpigrad::detail
