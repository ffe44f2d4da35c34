#pragma once

#include "models/nn/module.h"

namespace mpigrad::nn {

// Gives `to`, whose parameters are whole, the values of the parameters and buffers of `from`, a network of the same function
// whose ranks may hold blocks of them: collective then. Error: other parameters.
void copy_whole(Module& from, Module& to);

}  // namespace mpigrad::nn
