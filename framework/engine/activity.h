#pragma once
// What a rank is at, as whoever watches over hangs must know (comm/transport/watch/watchdog.h).

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace mpigrad::detail {

struct Activity {
  std::atomic<bool> trains = false;  // an optimizer has made a step
  std::atomic<int> unhurried = 0;    // how many phases are under way in which a call may take any time
  // Since when this rank's host has waited for its GPU, in nanoseconds of the steady clock; 0: it does not.
  std::atomic<std::int64_t> gpu_since = 0;
};

// Of the rank that runs on this thread. Others may keep it and read it.
const std::shared_ptr<Activity>& activity_of_this_thread();

// While one lives, what this rank waits for may take any time: others evaluate, write a checkpoint, read files.
class UnhurriedPhase {
 public:
  UnhurriedPhase() : activity_(activity_of_this_thread()) { ++activity_->unhurried; }
  ~UnhurriedPhase() { --activity_->unhurried; }
  UnhurriedPhase(const UnhurriedPhase&) = delete;
  UnhurriedPhase& operator=(const UnhurriedPhase&) = delete;

 private:
  std::shared_ptr<Activity> activity_;
};

// While one lives, this rank's host waits for its GPU.
class GpuWait {
 public:
  GpuWait() : activity_(*activity_of_this_thread()) {
    activity_.gpu_since = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  ~GpuWait() { activity_.gpu_since = 0; }
  GpuWait(const GpuWait&) = delete;
  GpuWait& operator=(const GpuWait&) = delete;

 private:
  Activity& activity_;
};

}  // namespace mpigrad::detail
