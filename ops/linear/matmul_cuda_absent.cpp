// Products of matrices without cuBLAS.

#include "ops/kernel/absent.h"
#include "ops/linear/matmul.h"

namespace mpigrad::ops {

MPIGRAD_ABSENT(Matmul)
MPIGRAD_ABSENT(Linear)

}  // namespace mpigrad::ops
