#pragma once

#include "models/nn/module.h"

namespace mpigrad::nn {

// Copies into `to`, whose parameters are whole, the values of the parameters and buffers of `from`, a network with the same
// function. Collective if the ranks of `from` hold blocks of them. Error: other parameters.
void copy_whole(Module& from, Module& to);

}  // namespace mpigrad::nn
