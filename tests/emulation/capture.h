#pragma once
// Records the work of captured streams, and repeats it. Dependencies come only from streams and events, so that unordered work is
// executed in another order.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulation/include/cuda_runtime_api.h"

namespace mpigrad::emulation {

using Nodes = std::vector<std::size_t>;

struct Node {
  std::function<void()> run;
  Nodes after;
};

struct Capture {
  cudaStream_t origin = nullptr;
  bool relaxed = false;
  std::vector<Node> nodes;
  std::map<cudaStream_t, Nodes> ends;  // for each participating stream: the predecessors of its next work
  Nodes last_in_order;
  std::string invalid;  // why the capture failed

  void add(cudaStream_t stream, std::function<void()> work);
  // Also ordered after the last work added in this way.
  void add_in_order(cudaStream_t stream, std::function<void()> work);
  // `stream` takes part from now on, and its next work comes after `points`.
  void join(cudaStream_t stream, const Nodes& points);
  // True if all work comes before the end of the stream in which the capture began.
  bool joined() const;
};
using CapturePtr = std::shared_ptr<Capture>;

// Runs the nodes in an order that the dependencies allow; `backwards`: always the last recorded one of those that may run next.
void run_nodes(const std::vector<Node>& nodes, bool backwards);

// Why this thread may not allocate or release memory, or wait for the device, now; empty if it may.
std::string forbidden_by_capture(bool waits);
// The capture of this thread, or null.
Capture*& capture_of_this_thread();

}  // namespace mpigrad::emulation
