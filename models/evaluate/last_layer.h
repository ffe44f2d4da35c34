#pragma once
// The last layer of an untrained network, by ridge regression.

#include "models/data/data.h"
#include "models/networks/cosmoflow.h"

namespace mpigrad {

// Sets the last layer of a network of the variant pyramid, and the norm before it, to the ridge regression
// (models/train/ridge.h) of the loader's targets on the network's features as they are. Collective.
void fit_last_layer(CosmoFlow& net, const data::Loader& loader);

}  // namespace mpigrad
