// Masks of labels without CUDA.

#include "ops/kernel/absent.h"
#include "ops/loss/loss.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(LabelMask)

}  // namespace mpigrad::ops
