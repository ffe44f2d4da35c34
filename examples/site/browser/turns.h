#pragma once
// A transport whose ranks take turns on one thread, for places without threads (a browser).

#include <functional>
#include <memory>

#include "comm/transport/transport.h"

namespace mpigrad {

// Runs body(transport) on `ranks` ranks that take turns on the calling thread, for small programs with few calls. body is called
// many times for each rank, each time from its beginning, until it has finished once. It must do the same each time (its calls
// are compared), and its side effects must tolerate repetition. Tensors in host memory only. An exception ends all ranks and is
// rethrown; a deadlock is an Error that says which rank waits for what.
void run_in_turns(int ranks, const std::function<void(std::shared_ptr<Transport>)>& body);

}  // namespace mpigrad
