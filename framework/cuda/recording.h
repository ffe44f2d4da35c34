#pragma once
// The capture that is in progress on a thread. Included by framework/cuda only.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/cuda/allocator.h"
#include "framework/cuda/cuda.h"

namespace mpigrad::cuda {

// Resources that captured work needs as long as it may be repeated.
class Recording {
 public:
  // Copies the bytes to pinned memory that lives as long as the recording.
  const std::byte* kept(const void* bytes, std::int64_t count);
  // Memory of another thread, released together with the recording.
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
  std::int64_t used_ = 0;  // bytes of the last buffer
};

// The recording of this thread, null if there is none.
Recording* recording();
// Error if this thread is recording: `call` would wait for work that has not run.
void require_not_recording(const char* call);
CachingAllocator& allocator_of_this_thread();

}  // namespace mpigrad::cuda
