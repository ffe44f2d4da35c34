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
  std::atomic<int> checkpoints = 0;  // number of those that write a checkpoint
  // Time at which this rank's host began to wait for its GPU, in nanoseconds of the steady clock; 0: it is not waiting.
  std::atomic<std::int64_t> gpu_since = 0;
};

// The flags of the rank that runs on this thread. Other threads may keep and read them.
const std::shared_ptr<Activity>& activity_of_this_thread();

// True if SIGTERM has asked this process to end. Set in a signal handler (models/train/restart/interruption.h).
extern std::atomic<bool> end_asked;

// While one is in scope, calls of this rank may take any time: other ranks evaluate, write a checkpoint, read files.
class SlowPhase {
 public:
  enum Kind : std::uint8_t { any, checkpoint };
  explicit SlowPhase(Kind kind = any) : activity_(activity_of_this_thread()), kind_(kind) {
    ++activity_->slow_phases;
    if (kind_ == checkpoint) ++activity_->checkpoints;
  }
  ~SlowPhase() {
    --activity_->slow_phases;
    if (kind_ == checkpoint) --activity_->checkpoints;
  }
  SlowPhase(const SlowPhase&) = delete;
  SlowPhase& operator=(const SlowPhase&) = delete;

 private:
  std::shared_ptr<Activity> activity_;
  Kind kind_;
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
