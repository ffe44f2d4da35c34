// Biases with activations without CUDA.

#include "ops/elementwise/activation.h"
#include "ops/kernel/absent.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(BiasActivation)
MPIGRAD_ABSENT(BiasActivationAdjoint)

}  // namespace mpigrad::ops
