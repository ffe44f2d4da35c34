#pragma once
// Ranks that exchange nothing, to see what exchanging costs: the bound of what overlap can hide. What is computed is wrong.

#include <memory>

#include "comm/transport/transport.h"

namespace mpigrad {

// Every call returns at once, with this rank's own part and zeros in place of the others'. Groups made of it are silent, too;
// they are really made, collectively. For buffers in host memory.
std::shared_ptr<Transport> silent_transport(std::shared_ptr<Transport> inner);

}  // namespace mpigrad
