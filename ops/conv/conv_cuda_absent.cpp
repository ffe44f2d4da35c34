// Convolution without cuDNN.

#include "ops/conv/conv.h"
#include "ops/kernel/absent.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(Conv)
MPIGRAD_ABSENT(ConvData)
MPIGRAD_ABSENT(ConvWeight)
MPIGRAD_ABSENT(ConvBiasActivation)

}  // namespace mpigrad::ops
