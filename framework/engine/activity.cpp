#include "framework/engine/activity.h"

namespace mpigrad::detail {

const std::shared_ptr<Activity>& activity_of_this_thread() {
  static thread_local const auto activity = std::make_shared<Activity>();
  return activity;
}

}  // namespace mpigrad::detail
