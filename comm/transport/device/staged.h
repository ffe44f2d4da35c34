#pragma once
// Device memory through a transport that moves host memory: buffers are copied to pinned memory of the host, moved by the inner
// call, and copied back, in the order of this rank's device work. It serves a GPU without NCCL, ranks that share one, and
// messages with tags and wildcards. The host waits for the device once in each call that has something to send.

#include <memory>

#include "comm/transport/device/device_memory.h"
#include "comm/transport/transport.h"

namespace mpigrad {

struct StagedOptions {
  // The inner transport moves device memory itself (a CUDA-aware MPI library): calls that only move data are handed on with the
  // device's addresses once the device has come so far.
  bool direct = false;
  // Reductions too, of all types but the 16-bit ones, which the inner transport may convert.
  bool direct_reductions = false;
};

// Local: no new communicator. Messages match those that others send and receive by `inner` itself.
std::shared_ptr<Transport> staged(std::shared_ptr<Transport> inner, std::shared_ptr<DeviceMemory> memory,
                                  const StagedOptions& options = {});

}  // namespace mpigrad
