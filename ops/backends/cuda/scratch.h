#pragma once
// Memory for the length of a call. It is allocated and freed in stream order: no call waits.

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "framework/cuda/cuda.h"

namespace mpigrad::cuda {

class Scratch {
 public:
  explicit Scratch(std::int64_t bytes) : memory_(bytes > 0 ? allocate(bytes) : nullptr) {}
  ~Scratch() { release(memory_); }
  Scratch(Scratch&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  void* data() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

// Limit of scratch memory in bytes, above which another kernel is preferred (GpuSettings::workspace).
inline std::int64_t workspace_limit(std::int64_t setting) { return setting < 0 ? total_memory() / 16 : setting; }

// A thread's context of a vendor's library: a handle for its GPU, with plans. Contexts are never destroyed, because the driver
// may be unloaded first at process exit; a later thread takes over the context of a thread that has ended.
template <class Context>
class Leased {
 public:
  static Context& of_this_thread() {
    thread_local Leased lease;
    const int device = selected();
    if (!lease.context_ || lease.context_->device != device) {
      lease.give_back();
      auto& idle = waiting();
      const std::lock_guard lock(idle.mutex);
      for (auto at = idle.contexts.begin(); at != idle.contexts.end(); ++at)
        if ((*at)->device == device) {
          lease.context_ = *at;
          idle.contexts.erase(at);
          return *lease.context_;
        }
      lease.context_ = new Context(device);
    }
    return *lease.context_;
  }

 private:
  struct Waiting {
    std::mutex mutex;
    std::vector<Context*> contexts;
  };
  static Waiting& waiting() {
    static auto* instance = new Waiting;
    return *instance;
  }
  Leased() = default;
  ~Leased() { give_back(); }
  void give_back() {
    if (!context_) return;
    auto& idle = waiting();
    const std::lock_guard lock(idle.mutex);
    idle.contexts.push_back(std::exchange(context_, nullptr));
  }
  Context* context_ = nullptr;
};

}  // namespace mpigrad::cuda
