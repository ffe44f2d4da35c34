// Running averages on GPUs: calls the kernels on tensors.

#include "ops/kernel/absent.h"
#include "ops/norm/running_averages.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "ops/kernel/gpu_tensors.h"
#include "ops/norm/running_averages_cuda.h"

namespace mpigrad::ops {

void RunningAverages::run(Cuda, Inputs in, Outputs) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    Tensor to_mean = in[4], to_variance = in[5];
    cuda::running_averages<T>(
        in[0].elements(),
        {read<T>(in[0]), read<T>(in[1]), read<T>(in[2]), read<T>(in[3]), written<T>(to_mean), written<T>(to_variance)},
        {momentum, correction}, cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(RunningAverages)

}  // namespace mpigrad::ops
#endif
