#pragma once
// Transports for tensors on a GPU: NCCL where every rank of a communicator has its own GPU, device copies between the ranks of
// one process, and otherwise the host's transport through pinned memory. Used inside comm only.

#include <memory>
#include <span>
#include <string_view>

#include "comm/transport/device/device_memory.h"
#include "comm/transport/summation_mode.h"
#include "comm/transport/transport.h"

namespace mpigrad {

// The location of a rank's GPU, as ranks send it to each other.
struct GpuPlace {
  char host[256] = {};  // the node's name
  char gpu[64] = {};    // the PCI bus; empty where the rank cannot use NCCL
  // NCCL_HOSTID is set: the user defines the nodes, and for NCCL ranks may share a GPU (tests do this).
  bool named_host = false;
};
GpuPlace gpu_place();

enum class DeviceEngine : std::uint8_t { nccl, in_process, staged };
constexpr std::string_view name_of(DeviceEngine engine) {
  switch (engine) {
    case DeviceEngine::nccl: return "nccl";
    case DeviceEngine::in_process: return "in_process";
    case DeviceEngine::staged: return "staged";
  }
  return "?";
}
// `places` are those of all ranks; in_process: the ranks are threads of one process. The same result on every rank.
DeviceEngine choose_engine(std::span<const GpuPlace> places, bool in_process);

// Local. Collectives and rounds go to the engine, which all ranks choose, collectively, at the first of these calls. The host's
// transport carries messages with tags and wildcards, non-blocking collectives except those of the buckets' lane, and reductions
// in types without a kernel. `mode` is that of `host`, whose buffers, calls and messages this transport shares; `place` is used
// once.
std::shared_ptr<Transport> device_transport(std::shared_ptr<Transport> host, const SummationMode& mode, Lane lane,
                                            std::shared_ptr<DeviceMemory> memory, const GpuPlace& place);

// The value of MPIGRAD_CUDA_AWARE_MPI: whether MPI accepts device addresses. Error: neither 0 nor 1.
bool cuda_aware_mpi();

}  // namespace mpigrad
