#pragma once
// Device memory between ranks that are threads of one process, by device copies. The ranks share a GPU, or each has its own. The
// host transport carries addresses and events; the host never waits for a device.

#include <memory>

#include "comm/transport/device/device_memory.h"
#include "comm/transport/transport.h"

namespace mpigrad {

// Local: no new communicator. A message sent by this transport is received by this one, not by `host`, and the reverse. The
// inputs of a call are copied when it starts, so that the ranks need no second synchronisation: each takes the parts it needs
// from the copies of all ranks, and the last one releases them. Every rank that needs a sum computes it, in the order of ranks,
// in types that `memory` computes.
std::shared_ptr<Transport> in_process(std::shared_ptr<Transport> host, std::shared_ptr<DeviceMemory> memory);

}  // namespace mpigrad
