#include "framework/engine/activity.h"

namespace mpigrad::detail {

std::atomic<bool> end_asked = false;
static_assert(std::atomic<bool>::is_always_lock_free);

const std::shared_ptr<Activity>& activity_of_this_thread() {
  static thread_local const auto activity = std::make_shared<Activity>();
  return activity;
}

}  // namespace mpigrad::detail
