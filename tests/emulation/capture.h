#pragma once
// What streams are given while they are captured, and how it is repeated. Dependencies are those of streams and events alone, so
// that work which nobody has ordered comes out in another order.

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
  std::map<cudaStream_t, Nodes> ends;  // of the streams that take part: what their next work comes after
  Nodes last_in_order;
  std::string invalid;  // why nothing comes of it

  void add(cudaStream_t stream, std::function<void()> work);
  // Also after what was last added in this way.
  void add_in_order(cudaStream_t stream, std::function<void()> work);
  // The next work of `stream`, which takes part from now on, comes after `points`.
  void join(cudaStream_t stream, const Nodes& points);
  // Whether everything comes before the end of the stream where it began.
  bool joined() const;
};
using CapturePtr = std::shared_ptr<Capture>;

// In an order that the dependencies allow; `backwards`: of what may come next, always what was given last.
void run_nodes(const std::vector<Node>& nodes, bool backwards);

// Why this thread may not take or give back memory, or wait for the device, now; empty if it may.
std::string forbidden_by_capture(bool waits);
// Of this thread, null if there is none.
Capture*& capture_of_this_thread();

}  // namespace mpigrad::emulation
