// Products of matrices without cuBLAS.

#include "ops/cuda/absent.h"
#include "ops/matmul.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(Matmul)
MPIGRAD_ABSENT(Linear)

}  // namespace mpigrad::ops
