#pragma once
// What the rest of the foundation knows of a capture that is under way. Included by framework/cuda only.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/cuda/allocator.h"
#include "framework/cuda/cuda.h"

namespace mpigrad::cuda {

// What the captured work needs as long as it may be repeated.
class Recording {
 public:
  // Pinned memory with these bytes, which stay.
  const std::byte* kept(const void* bytes, std::int64_t count);
  // Memory of another thread's, given back with the recording.
  void release_later(void* memory) { others_.push_back(memory); }
  Recording() = default;
  ~Recording() {
    for (auto* memory : others_) release(memory);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  static constexpr std::int64_t piece = 1 << 20;
  std::vector<PinnedBuffer> memory_;
  std::vector<void*> others_;
  std::int64_t used_ = 0;  // of the last one
};

// Of this thread, null if there is none.
Recording* recording();
// Throws if there is one: whatever `call` would wait for has not been done.
void require_not_recording(const char* call);
CachingAllocator& allocator_of_this_thread();

}  // namespace mpigrad::cuda
