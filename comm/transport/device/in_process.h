#pragma once
// Device memory between ranks that are threads of one process, by device copies: ranks that share a GPU, or have one each. The
// host transport carries addresses and events; no host waits for a device.

#include <memory>

#include "comm/transport/device/device_memory.h"
#include "comm/transport/transport.h"

namespace mpigrad {

// Local: no new communicator. A message sent by this one is received by this one, not by `host`, and the reverse. What a call
// hands in is copied when it starts, so that the ranks need no second meeting: each takes from the copies of all what it needs,
// and the last one releases them. Sums are computed by every rank that wants them, in the order of ranks, in types that `memory`
// computes.
std::shared_ptr<Transport> in_process(std::shared_ptr<Transport> host, std::shared_ptr<DeviceMemory> memory);

}  // namespace mpigrad
