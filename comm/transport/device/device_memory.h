#pragma once
// Operations on the memory in which communication buffers lie, in the order of this rank's device work (a GPU's compute stream).
// On host memory every operation is done at once; in tests host memory stands in for a device. Used inside comm only.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/transport/transport.h"

namespace mpigrad {

// A point in the order of one rank's device work.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Work that the calling rank's device is given from now on begins after this point; the host does not wait.
  virtual void hold() const = 0;
};

// The memory of one rank; used by one thread at a time, but allocations may be released on any thread.
class DeviceMemory {
 public:
  using Bytes = std::shared_ptr<std::byte>;
  virtual ~DeviceMemory() = default;

  // Uninitialised. May be released while work on it is under way.
  virtual Bytes allocate(std::int64_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  // The place of the memory, a GPU: kernels read and write memory of one place only; copies work between places.
  virtual int place() const { return 0; }
  // True if combine() supports the type.
  virtual bool computes(DType type, CombineOp op) const = 0;
  // a[i] = op(a[i], in[i]); a NaN in either operand of max and min stays. 16-bit types: computed in float32 and rounded.
  virtual void combine(void* a, const void* in, std::int64_t count, DType type, CombineOp op) = 0;
  // Converts between the floating-point types.
  virtual void convert(const void* in, DType from, void* out, DType to, std::int64_t count) = 0;
  virtual std::shared_ptr<DeviceEvent> mark() = 0;

  // Host memory that the device reads and writes concurrently with other work. May be released while copies from it are under
  // way.
  virtual Bytes allocate_host(std::int64_t bytes) = 0;
  virtual void to_host(void* host, const void* device, std::int64_t bytes) = 0;  // complete after synchronise()
  virtual void to_device(void* device, const void* host, std::int64_t bytes) = 0;
  // The host waits for all work given so far.
  virtual void synchronise() = 0;
};

std::shared_ptr<DeviceMemory> host_memory();
// Memory of the calling thread's GPU.
std::shared_ptr<DeviceMemory> cuda_memory();

}  // namespace mpigrad
