#pragma once
// Device memory through a transport that moves host memory: buffers are copied to pinned host memory, moved by the inner call,
// and copied back, in the order of this rank's device work. Used for a GPU without NCCL, for ranks that share a GPU, and for
// messages with tags and wildcards. The host waits for the device once in each call that sends data.

#include <memory>

#include "comm/transport/device/device_memory.h"
#include "comm/transport/transport.h"

namespace mpigrad {

struct StagedOptions {
  // The inner transport moves device memory itself (a CUDA-aware MPI library): calls that only move data are forwarded with
  // device addresses once the device has finished the preceding work.
  bool direct = false;
  // Reductions are forwarded too, of all types but the 16-bit ones, which the inner transport may convert.
  bool direct_reductions = false;
};

// Local: no new communicator. Messages match those that other ranks send and receive directly by `inner`.
std::shared_ptr<Transport> staged(std::shared_ptr<Transport> inner, std::shared_ptr<DeviceMemory> memory,
                                  const StagedOptions& options = {});

}  // namespace mpigrad
