// Softmax without CUDA.

#include "ops/kernel/absent.h"
#include "ops/softmax/logsumexp.h"
#include "ops/softmax/softmax.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(Softmax)
MPIGRAD_ABSENT(LogSoftmax)
MPIGRAD_ABSENT(LogSumExpAlong)
MPIGRAD_ABSENT(ExpScaled)

}  // namespace mpigrad::ops
