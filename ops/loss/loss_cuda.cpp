// Masks of labels on GPUs: calls the kernels on tensors.

#include "ops/kernel/absent.h"
#include "ops/loss/loss.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "ops/kernel/gpu_tensors.h"
#include "ops/kernel/label_mask.h"

namespace mpigrad::ops {

void LabelMask::run(Cuda, Inputs in, Outputs out) const {
  visit_any_integral(in[0].dtype(), [&](auto zero) {
    using I = decltype(zero);
    cuda::label_mask(in[0].elements(), classes, ignored.has_value(), ignored.value_or(0), read<I>(in[0]), written<bool>(out[0]),
                     cuda::fault_record(), cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(LabelMask)

}  // namespace mpigrad::ops
#endif
