#pragma once
// Ranks that exchange nothing, to see what exchanging costs: the bound of what overlap can hide. What is computed is wrong.

#include <memory>

#include "comm/transport/transport.h"

namespace mpigrad {

// What is left of a call.
enum class Silence : std::uint8_t {
  nothing,  // it returns at once
  waiting   // it waits for the same ranks: messages carry one element, and collectives are barriers of their ranks
};

// Every call gives this rank's own part, and zeros in place of the others'. Groups made of it are silent, too; they are really
// made, collectively. For buffers in host memory. The time of a step with Silence::waiting, less that with nothing, is waiting
// for ranks that are slower at the moment, which no transport can spare; the rest of what exchanging costs is moving.
std::shared_ptr<Transport> silent_transport(std::shared_ptr<Transport> inner, Silence left = Silence::nothing);

}  // namespace mpigrad
