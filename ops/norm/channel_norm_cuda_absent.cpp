// Normalisation without CUDA.

#include "ops/kernel/absent.h"
#include "ops/norm/channel_norm.h"
#include "ops/norm/running_averages.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(ChannelMoments)
MPIGRAD_ABSENT(ChannelAffine)
MPIGRAD_ABSENT(ChannelDots)
MPIGRAD_ABSENT(NormAdjoint)
MPIGRAD_ABSENT(RunningAverages)

}  // namespace mpigrad::ops
