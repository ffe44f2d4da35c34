// Pooling without CUDA.

#include "ops/kernel/absent.h"
#include "ops/pool/pool.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(AvgPool)
MPIGRAD_ABSENT(AvgPoolAdjoint)
MPIGRAD_ABSENT(LeakyAvgPool)
MPIGRAD_ABSENT(LeakyAvgPoolAdjoint)
MPIGRAD_ABSENT(SignedAvgPool)
MPIGRAD_ABSENT(MaxPool)
MPIGRAD_ABSENT(MaxPoolScatter)
MPIGRAD_ABSENT(MaxPoolGather)

}  // namespace mpigrad::ops
