#pragma once
// Per-rank activity flags, read by the watchdog (comm/transport/watch/watchdog.h).

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace mpigrad::detail {

struct Activity {
  std::atomic<bool> trains = false;  // an optimizer has made a step
  std::atomic<int> slow_phases = 0;  // number of open phases in which a call may take any time
  // Time at which this rank's host began to wait for its GPU, in nanoseconds of the steady clock; 0: it is not waiting.
  std::atomic<std::int64_t> gpu_since = 0;
};

// The flags of the rank that runs on this thread. Other threads may keep and read them.
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

// Marks its scope as a wait of this rank's host for its GPU.
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
