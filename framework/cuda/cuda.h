#pragma once
// The CUDA device without a vendor's header: what is there, streams, events, memory, copies. cuda.cpp implements it where the
// toolkit is found, absent.cpp elsewhere; a build with CUDA starts on machines without a GPU or a driver, where available() is
// false. Failures of CUDA throw an Error that names the call, the GPU and CUDA's own text.
//
// Every thread that uses a GPU has a context: a GPU, a compute stream, a stream for halos (highest priority), one for gradient
// buckets (lowest), one for batches that arrive, and a caching allocator. Kernels and copies are issued to the compute stream
// unless said otherwise, so nothing here waits for the GPU but what says so, and those waits are counted. A thread's memory
// belongs to its compute stream: whoever uses it on another stream makes the compute stream wait for that one before the memory
// is released.

#include <cstddef>
#include <cstdint>
#include <string>

#include "framework/cuda/allocator.h"
#include "framework/cuda/fault.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/strided.h"

namespace mpigrad::cuda {

using Stream = void*;  // a cudaStream_t

// ---- what is there

bool available();
// In one line, why it is not; empty if it is.
std::string unavailable();
int devices();  // GPUs of this process; 0 where CUDA is not available
// The GPU of this thread, 0 unless selected (by rank on the node). Tensors stay on the GPU on which they were made.
void select(int index);
int selected();
// Of this thread's GPU, as its vendor calls it.
std::string name();
std::int64_t total_memory();  // bytes of this thread's GPU

// ---- order on the GPU

Stream compute_stream();
Stream halo_stream();
Stream bucket_stream();
Stream copy_stream();  // of what comes from the host while a step is computed
// What is issued to `stream` from now on begins after what `after` has been given so far. The host does not wait.
void wait(Stream stream, Stream after);
// The host waits for all that `stream` has been given so far; counted.
void synchronise(Stream stream);

// A point in a stream.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  void record(Stream stream);
  // `stream` goes on after the point recorded last; at once if none was.
  void hold(Stream stream) const;
  bool reached() const;      // does not wait
  void synchronise() const;  // the host waits; counted
  // The host waits because it is ahead of the GPU, which has more to do behind this point; counted by itself. Throws what kernels
  // have found wrong meanwhile.
  void throttle() const;

 private:
  void* event_ = nullptr;  // a cudaEvent_t
};

// Of this process.
struct Statistics {
  std::int64_t host_synchronisations = 0;  // times the host waited for a GPU: a training step has none
  std::int64_t throttles = 0;              // times it let a GPU that had more to do catch up with it
  std::int64_t bytes_to_device = 0, bytes_to_host = 0, bytes_on_device = 0;
};
Statistics statistics();

// ---- memory

// Of this thread's GPU, 512-byte aligned. Where there is none: releases what is cached, tries again, then throws an Error that
// names the op, the request and the allocator's state. With MPIGRAD_GPU_POISON=1, for tests, it is full of NaN each time.
void* allocate(std::int64_t bytes);
// From any thread; work that the releasing thread's compute stream has been given comes first.
void release(void* memory) noexcept;
// Of this thread's allocator, or of all of them together.
AllocatorStatistics memory();
AllocatorStatistics memory_of_process();
void reset_peak_memory();
// Gives cached segments of all contexts back to the driver; their bytes.
std::int64_t trim_memory();

// Memory of the host that the GPU reads and writes at full speed and beside kernels.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::int64_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// ---- copies

// In any direction, in the order of `stream`. Host memory must be pinned and stay as it is until the copy is done.
void copy(void* to, const void* from, std::int64_t bytes, Stream stream);
// From any host memory, which may change as soon as this returns: the bytes go through pinned buffers.
void copy_to_device(void* to, const void* from, std::int64_t bytes);
// To any host memory; waits for the compute stream, which is counted.
void copy_to_host(void* to, const void* from, std::int64_t bytes);
void copy_on_device(void* to, const void* from, std::int64_t bytes);
void zero(void* memory, std::int64_t bytes);
// `count` elements of `item` bytes (1, 2, 4 or 8), each with the bytes at `value`, which is on the host.
void fill(void* memory, std::int64_t count, std::int64_t item, const void* value);
// Elements of `item` bytes; the first array of `walk` is `to`, the second `from`. Packs and unpacks boxes, permutes, flips,
// repeats.
void copy_strided(void* to, const void* from, std::int64_t item, const StridedArrays<2>& walk, Stream stream);
// The same with to += from; no two elements go to one place.
void add_strided(void* to, const void* from, DType dtype, const StridedArrays<2>& walk, Stream stream);

// ---- faults

// Of this thread's context, in pinned memory.
Fault* fault_record();

}  // namespace mpigrad::cuda
