#pragma once
// What serves the tensors of a GPU: NCCL where every rank of a communicator has a GPU of its own, device copies between the ranks
// of one process, and the host's transport through pinned memory otherwise. Used inside comm only.

#include <memory>
#include <span>
#include <string_view>

#include "comm/transport/device/device_memory.h"
#include "comm/transport/summation_mode.h"
#include "comm/transport/transport.h"

namespace mpigrad {

// Where a rank's GPU is, as ranks tell each other.
struct GpuPlace {
  char host[256] = {};  // the node's name
  char gpu[64] = {};    // the PCI bus; empty where the rank cannot use NCCL
  // NCCL_HOSTID is set: the user says what counts as a node, and ranks may share a GPU in NCCL's eyes (tests do).
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
// `places` are those of all ranks, which are threads of one process or not. The same answer on every rank.
DeviceEngine choose_engine(std::span<const GpuPlace> places, bool in_process);

// Local. Collectives and rounds go to the engine, which all ranks choose, collectively, at the first of these calls. Messages
// with tags and wildcards go through the host's transport, and so do collectives that are only started, but for those of the
// buckets' lane, and reductions in types that no kernel has. `mode` is that of `host`, whose buffers, calls and messages it
// shares; `place` is asked once.
std::shared_ptr<Transport> device_transport(std::shared_ptr<Transport> host, const SummationMode& mode, Lane lane,
                                            std::shared_ptr<DeviceMemory> memory, const GpuPlace& place);

// What MPIGRAD_CUDA_AWARE_MPI says: whether MPI takes device addresses. Error: neither 0 nor 1.
bool cuda_aware_mpi();

}  // namespace mpigrad
