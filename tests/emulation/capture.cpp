#include "tests/emulation/capture.h"

#include <utility>

namespace mpigrad::emulation {

void Capture::add(cudaStream_t stream, std::function<void()> work) {
  auto& end = ends[stream];
  nodes.push_back({std::move(work), std::exchange(end, {})});
  end = {nodes.size() - 1};
}

void Capture::add_in_order(cudaStream_t stream, std::function<void()> work) {
  join(stream, last_in_order);
  add(stream, std::move(work));
  last_in_order = ends[stream];
}

void Capture::join(cudaStream_t stream, const Nodes& points) {
  auto& end = ends[stream];
  end.insert(end.end(), points.begin(), points.end());
}

bool Capture::joined() const {
  std::vector<bool> before(nodes.size(), false);
  auto open = ends.at(origin);
  while (!open.empty()) {
    const auto at = open.back();
    open.pop_back();
    if (before[at]) continue;
    before[at] = true;
    open.insert(open.end(), nodes[at].after.begin(), nodes[at].after.end());
  }
  for (const bool each : before)
    if (!each) return false;
  return true;
}

void run_nodes(const std::vector<Node>& nodes, bool backwards) {
  std::vector<std::size_t> missing(nodes.size());
  std::vector<Nodes> then(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i].after.size();
    for (const auto before : nodes[i].after) then[before].push_back(i);
  }
  std::map<std::size_t, const Node*> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (missing[i] == 0) ready[i] = &nodes[i];
  while (!ready.empty()) {
    const auto next = backwards ? std::prev(ready.end()) : ready.begin();
    const auto at = next->first;
    next->second->run();
    ready.erase(next);
    for (const auto behind : then[at])
      if (--missing[behind] == 0) ready[behind] = &nodes[behind];
  }
}

Capture*& capture_of_this_thread() {
  thread_local Capture* mine = nullptr;
  return mine;
}

std::string forbidden_by_capture(bool waits) {
  auto* mine = capture_of_this_thread();
  if (!mine || (mine->relaxed && !waits)) return {};
  mine->invalid = waits ? "the device is waited for while a stream is captured" : "memory is taken while a stream is captured";
  return mine->invalid;
}

}  // namespace mpigrad::emulation
