#pragma once
// A transport that moves no data, to measure what communication costs: an upper bound of what overlap can hide. Results are
// wrong.

#include <memory>

#include "comm/transport/transport.h"

namespace mpigrad {

// The remaining effect of a call.
enum class Silence : std::uint8_t {
  nothing,  // it returns at once
  waiting   // it waits for the same ranks: messages carry one element, and collectives are barriers of their ranks
};

// Every call returns this rank's own part, and zeros in place of the others'. Groups made from it are silent, too; they are
// really made, collectively. For buffers in host memory. The time of a step with Silence::waiting, minus the time with
// Silence::nothing, is waiting for ranks that are slower at the moment, which no transport can avoid; the rest of the cost of
// communication is moving data.
std::shared_ptr<Transport> silent_transport(std::shared_ptr<Transport> inner, Silence left = Silence::nothing);

}  // namespace mpigrad
