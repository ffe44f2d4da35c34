#pragma once
// The interface to CUDA devices, without a vendor's header: devices, streams, events, memory, copies. device.cpp and copies.cpp
// implement it where the toolkit is found, absent.cpp elsewhere; a build with CUDA starts on machines without a GPU or a driver,
// where available() is false. Failures of CUDA throw an Error that names the call, the GPU and CUDA's own text.
//
// Every thread that uses a GPU has a context: a GPU, a compute stream, a stream for halos (highest priority), one for gradient
// buckets (lowest), one for the transfer of batches, and a caching allocator. Kernels and copies are issued to the compute stream
// unless stated otherwise. Functions that wait for the GPU say so, and these waits are counted. The memory of a thread belongs to
// its compute stream: code that uses it on another stream makes the compute stream wait for that stream before the memory is
// released.

#include <cstddef>
#include <cstdint>
#include <string>

#include "framework/cuda/allocator.h"
#include "framework/cuda/fault.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/strided.h"

namespace mpigrad::cuda {

using Stream = void*;  // a cudaStream_t

// ---- devices

bool available();
// The reason why CUDA is not available, in one line; empty if it is.
std::string unavailable();
int devices();  // GPUs of this process; 0 where CUDA is not available
// The GPU of this thread, 0 unless selected (by rank on the node). Tensors stay on the GPU on which they were made.
void select(int index);
int selected();
// The vendor's name of this thread's GPU.
std::string name();
std::int64_t total_memory();  // bytes of this thread's GPU

// ---- order on the GPU

Stream compute_stream();
Stream halo_stream();
Stream bucket_stream();
Stream copy_stream();  // for copies from the host during a step
// Work issued to `stream` from now on begins after the work issued to `after` so far. The host does not wait.
void wait(Stream stream, Stream after);
// The host waits for all work issued to `stream` so far; counted.
void synchronise(Stream stream);

// A point in a stream.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  void record(Stream stream);
  // `stream` waits for the point recorded last; it does not wait if none was recorded.
  void hold(Stream stream) const;
  bool reached() const;      // does not wait
  void synchronise() const;  // the host waits; counted
  // The host waits because it is ahead of the GPU, which has more work after this point; counted separately. Throws faults that
  // kernels have recorded (fault.h).
  void throttle() const;

 private:
  void* event_ = nullptr;  // a cudaEvent_t
};

// Counters of this process.
struct Statistics {
  std::int64_t host_synchronisations = 0;  // times the host waited for a GPU: a training step has none
  std::int64_t throttles = 0;              // times the host waited for a GPU that had more work to do
  std::int64_t bytes_to_device = 0, bytes_to_host = 0, bytes_on_device = 0;
};
Statistics statistics();

// ---- memory

// Memory of this thread's GPU, 512-byte aligned. Out of memory: releases cached segments and tries again, then throws an Error
// with the op, the request and the allocator's state. With MPIGRAD_GPU_POISON=1, for tests, the memory is filled with NaN.
void* allocate(std::int64_t bytes);
// May be called from any thread; work already issued to the calling thread's compute stream may still use the memory.
void release(void* memory) noexcept;
// Statistics of this thread's allocator, and of all allocators together.
AllocatorStatistics memory();
AllocatorStatistics memory_of_process();
void reset_peak_memory();
// Releases cached segments of all contexts to the driver; returns their bytes.
std::int64_t trim_memory();

// Pinned host memory, which the GPU reads and writes at full speed and concurrently with kernels.
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

// Copies in any direction, in the order of `stream`. Host memory must be pinned and unchanged until the copy is done.
void copy(void* to, const void* from, std::int64_t bytes, Stream stream);
// Copies from any host memory, which may change as soon as this returns: the bytes go through pinned buffers.
void copy_to_device(void* to, const void* from, std::int64_t bytes);
// Copies to any host memory; waits for the compute stream, which is counted.
void copy_to_host(void* to, const void* from, std::int64_t bytes);
void copy_on_device(void* to, const void* from, std::int64_t bytes);
void zero(void* memory, std::int64_t bytes);
// Sets `count` elements of `item` bytes (1, 2, 4 or 8) to the bytes at `value`, which is on the host.
void fill(void* memory, std::int64_t count, std::int64_t item, const void* value);
// Copies elements of `item` bytes; the first array of `walk` is `to`, the second `from`. Packs and unpacks boxes, permutes,
// flips, repeats.
void copy_strided(void* to, const void* from, std::int64_t item, const StridedArrays<2>& walk, Stream stream);
// The same with to += from; each place of `to` occurs once.
void add_strided(void* to, const void* from, DType dtype, const StridedArrays<2>& walk, Stream stream);

// ---- faults

// The fault record of this thread's context, in pinned memory.
Fault* fault_record();

}  // namespace mpigrad::cuda
