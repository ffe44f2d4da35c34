#pragma once
// Per-rank activity flags, read by the watchdog (comm/transport/watch/watchdog.h).

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace mpigrad::detail {

struct Activity {
  std::atomic<bool> trains = false;  // an optimizer has made a step
  std::atomic<int> slow_phases = 0;  // how many phases are under way in which a call may take any time
  // Since when this rank's host has waited for its GPU, in nanoseconds of the steady clock; 0: it does not.
  std::atomic<std::int64_t> gpu_since = 0;
};

// Of the rank that runs on this thread. Others may keep it and read it.
const std::shared_ptr<Activity>& activity_of_this_thread();

// While one is in scope, calls of this rank may take any time: other ranks evaluate, write a checkpoint, read files.
class SlowPhase {
 public:
  SlowPhase() : activity_(activity_of_this_thread()) { ++activity_->slow_phases; }
  ~SlowPhase() { --activity_->slow_phases; }
  SlowPhase(const SlowPhase&) = delete;
  SlowPhase& operator=(const SlowPhase&) = delete;

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
