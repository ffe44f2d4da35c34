// Reductions without CUDA.

#include "ops/kernel/absent.h"
#include "ops/reduce/reduce.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(Sum)
MPIGRAD_ABSENT(BroadcastTo)
MPIGRAD_ABSENT(Extremum)
MPIGRAD_ABSENT(ArgMax)

}  // namespace mpigrad::ops
