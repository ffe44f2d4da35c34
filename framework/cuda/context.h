#pragma once
// The GPU context of a thread. Included by framework/cuda only.

#include <atomic>
#include <cstdint>
#include <deque>
#include <new>
#include <utility>

#include "framework/cuda/allocator.h"
#include "framework/cuda/check.h"
#include "framework/cuda/cuda.h"
#include "framework/cuda/kernels.h"

namespace mpigrad::cuda {

struct Counters {
  std::atomic<std::int64_t> synchronisations{0}, throttles{0}, to_device{0}, to_host{0}, on_device{0};
};
Counters& counters();
inline void count_synchronisation() { counters().synchronisations.fetch_add(1, std::memory_order_relaxed); }

// Pinned buffers through which pageable memory travels; a buffer is free again when its event is reached.
class Staging {
 public:
  static constexpr std::int64_t largest = 16 << 20;
  static constexpr std::int64_t most = 256 << 20;  // bytes; above this the host waits for the oldest buffer

  struct Buffer {
    PinnedBuffer memory;
    Event busy;
  };

  Buffer take(std::int64_t bytes) {
    std::int64_t size = 64 << 10;
    while (size < bytes) size *= 2;
    for (auto at = idle_.begin(); at != idle_.end(); ++at) {
      if (at->memory.bytes() != size || !at->busy.reached()) continue;
      Buffer found = std::move(*at);
      idle_.erase(at);
      return found;
    }
    while (total_ + size > most && !idle_.empty()) {  // release the oldest
      idle_.front().busy.synchronise();
      total_ -= idle_.front().memory.bytes();
      idle_.pop_front();
    }
    total_ += size;
    return {PinnedBuffer(size), Event()};
  }
  void give_back(Buffer buffer) { idle_.push_back(std::move(buffer)); }

 private:
  std::deque<Buffer> idle_;  // in the order of their events
  std::int64_t total_ = 0;
};

struct Context {
  explicit Context(int index)
      : device(index), allocator({.allocate = [index](std::int64_t bytes) { return driver_allocate(index, bytes); },
                                  .release = [index](void* segment) { driver_release(index, segment); }}) {
    MPIGRAD_CUDA(cudaSetDevice(device));
    int lowest = 0, highest = 0;
    MPIGRAD_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    MPIGRAD_CUDA(cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, (lowest + highest) / 2));
    MPIGRAD_CUDA(cudaStreamCreateWithPriority(&halo, cudaStreamNonBlocking, highest));
    MPIGRAD_CUDA(cudaStreamCreateWithPriority(&bucket, cudaStreamNonBlocking, lowest));
    MPIGRAD_CUDA(cudaStreamCreateWithPriority(&copy, cudaStreamNonBlocking, (lowest + highest) / 2));
    MPIGRAD_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    std::size_t free = 0, all = 0;
    MPIGRAD_CUDA(cudaMemGetInfo(&free, &all));
    total_memory = static_cast<std::int64_t>(all);
    void* record = nullptr;
    MPIGRAD_CUDA(cudaHostAlloc(&record, sizeof(Fault), cudaHostAllocPortable | cudaHostAllocMapped));
    fault_ = new (record) Fault;
  }
  Fault* fault() const { return fault_; }

  // The allocator may be called on a thread that uses another GPU.
  template <class F>
  static auto on_device(int index, F&& f) {
    int previous = index;
    static_cast<void>(cudaGetDevice(&previous));
    if (previous != index) static_cast<void>(cudaSetDevice(index));
    const auto result = f();
    if (previous != index) static_cast<void>(cudaSetDevice(previous));
    return result;
  }
  static void* driver_allocate(int index, std::int64_t bytes) {
    void* segment = nullptr;
    const auto code = on_device(index, [&] { return cudaMalloc(&segment, static_cast<std::size_t>(bytes)); });
    if (code == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    check(code, "cudaMalloc");
    return segment;
  }
  static void driver_release(int index, void* segment) {
    // cudaFree waits for the GPU, so that no kernel still uses the segment.
    count_synchronisation();
    check(on_device(index, [&] { return cudaFree(segment); }), "cudaFree");
  }

  const int device;
  std::int64_t total_memory = 0;  // bytes of the GPU
  cudaStream_t compute{}, halo{}, bucket{}, copy{};
  cudaEvent_t event{};  // used by wait(): a stream waits for the event as recorded at the time of the call
  CachingAllocator allocator;
  Staging staging;

 private:
  Fault* fault_ = nullptr;
};

// The context of this thread, created at the first use. Error: there is no GPU.
Context& context();

}  // namespace mpigrad::cuda
