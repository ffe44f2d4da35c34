#pragma once
// Ranks that take turns on one thread, for places without threads (a browser).

#include <functional>
#include <memory>

#include "comm/transport/transport.h"

namespace mpigrad {

// Runs body(transport) on `ranks` ranks, for a few calls of small programs: ranks take turns on the calling thread. body is
// called many times for each rank, each time from its beginning, until it has gone through; it must do the same each time (which
// is compared), and what it leaves behind outside must bear repetition. Tensors in host memory only. An exception ends all and is
// rethrown; so does that no rank can go on, an Error which says who waits for what.
void run_in_turns(int ranks, const std::function<void(std::shared_ptr<Transport>)>& body);

}  // namespace mpigrad
