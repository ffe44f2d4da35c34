// Random numbers without CUDA.

#include "framework/engine/op.h"
#include "ops/random/random.h"

namespace mpigrad::ops {

void random_on_gpu(const RandomNumbers&, const Box&, const Shape&, Tensor&) { detail::refuse_cuda("random"); }

}  // namespace mpigrad::ops
