#pragma once
// The types behind CUDA's handles of streams, events and graphs in the emulator.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tests/emulation/capture.h"

using mpigrad::emulation::CapturePtr, mpigrad::emulation::Node, mpigrad::emulation::Nodes;

// Work is numbered from 1 in the order of enqueueing.
struct CUstream_st {
  struct Work {
    std::function<void()> run;
    const std::byte* host = nullptr;
    std::size_t bytes = 0;
  };
  int device = 0;
  std::deque<Work> queue;  // running work stays at the front
  std::uint64_t given = 0, done = 0;
  bool has_thread = false, destroyed = false;
  std::condition_variable_any came;  // for the stream's thread: there is work, or the stream ends
  CapturePtr capture;                // if set, work is recorded there instead of done
};

// A point of a stream: after the work of that number. Without a stream it has been reached.
struct CUevent_st {
  int device = 0;
  bool timed = true;
  CUstream_st* stream = nullptr;
  std::uint64_t number = 0;
  std::chrono::steady_clock::time_point time{};
  CapturePtr capture;  // or a point of this capture
  Nodes points;
};
struct CUgraph_st {
  std::vector<Node> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<Node>> nodes;
};
