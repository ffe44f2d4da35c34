// Views without CUDA.

#include "ops/kernel/absent.h"
#include "ops/views/resample.h"
#include "ops/views/views.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(Permute)
MPIGRAD_ABSENT(Slice)
MPIGRAD_ABSENT(SlicePut)
MPIGRAD_ABSENT(Concatenate)
MPIGRAD_ABSENT(Flip)
MPIGRAD_ABSENT(Take)
MPIGRAD_ABSENT(ScatterAdd)
MPIGRAD_ABSENT(OneHot)
MPIGRAD_ABSENT(MapLines)

}  // namespace mpigrad::ops
