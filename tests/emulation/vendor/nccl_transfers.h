#pragma once
// Moves data between the ranks of a communicator for the calls of a group, and computes their results.

#include <deque>
#include <memory>
#include <vector>

#include "tests/emulation/vendor/nccl_segment.h"

struct ncclComm {
  std::unique_ptr<mpigrad::emulation::vendor::Segment> segment;
  int device = 0;
  std::uint64_t collectives = 0, splits = 0;
  std::vector<std::uint64_t> sent, received;  // numbers of messages, by rank
  std::atomic<std::uintptr_t> user{0};        // the thread that uses it now
  std::string last_error;
};

namespace mpigrad::emulation::vendor {

std::size_t size_of(ncclDataType_t type);  // 0: unknown

struct Call {
  Header header;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  const void* in = nullptr;
  void* out = nullptr;
  int peer = -1;  // for messages
  bool sends = false;
  std::size_t bytes() const { return header.count * size_of(static_cast<ncclDataType_t>(header.type)); }
};

// Runs all calls of a group at once, like NCCL's kernel: messages between two ranks in order, collective calls in order, and no
// other waits. Results are written in the order of the streams.
void perform(std::vector<Call> calls);

}  // namespace mpigrad::emulation::vendor
