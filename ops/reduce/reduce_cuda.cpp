// Reductions on GPUs: calls the kernels on tensors.

#include "ops/kernel/absent.h"
#include "ops/reduce/reduce.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "ops/elementwise/broadcast.h"
#include "ops/kernel/gpu_tensors.h"
#include "ops/reduce/reduce_cuda_kernels.h"
#include "ops/reduce/reduction_plan.h"

namespace mpigrad::ops {

void Sum::run(Cuda, Inputs in, Outputs out) const {
  const auto reduction = cuda::reduction_of(in[0].shape(), axes);
  Tensor partial;
  if (reduction.chunks > 1) partial = scratch(reduction.chunks * reduction.outputs, DType::float64);
  visit_sums(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::sum(reduction, read<T>(in[0]), partial ? partial.raw() : nullptr, written<T>(out[0]), cuda::compute_stream());
  });
}

void BroadcastTo::run(Cuda, Inputs in, Outputs out) const {
  cuda::copy_strided(out[0].raw(), in[0].raw(), size_of(in[0].dtype()),
                     walk_of(shape, shape.strides(), broadcast_strides(in[0].shape(), shape)), cuda::compute_stream());
}

void Extremum::run(Cuda, Inputs in, Outputs out) const {
  require(in[0].dtype() != DType::boolean, "[max/min] of booleans; cast to uint8 first: {}", in[0]);
  const auto reduction = cuda::reduction_of(in[0].shape(), axes);
  Tensor partial;
  if (reduction.chunks > 1) partial = scratch(reduction.chunks * reduction.outputs, DType::float64);  // at least as wide
  visit_any_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>)
      cuda::extremum(reduction, largest, read<T>(in[0]), partial ? partial.raw() : nullptr, written<T>(out[0]),
                     cuda::compute_stream());
  });
}

void ArgMax::run(Cuda, Inputs in, Outputs out) const {
  const auto& shape = in[0].shape();
  visit_any_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::argmax(shape.elements(0, axis), shape[axis], shape.elements(axis + 1, shape.rank()), read<T>(in[0]),
                 written<std::int64_t>(out[0]), cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(Sum)
MPIGRAD_ABSENT(BroadcastTo)
MPIGRAD_ABSENT(Extremum)
MPIGRAD_ABSENT(ArgMax)

}  // namespace mpigrad::ops
#endif
