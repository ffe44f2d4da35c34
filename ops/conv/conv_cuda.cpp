// Convolution on GPUs: calls the library on tensors.

#include "ops/conv/conv.h"
#include "ops/kernel/absent.h"

#ifdef MPIGRAD_HAS_CUDNN
#include "ops/backends/cudnn/cudnn_conv.h"
#include "ops/conv/conv_problem.h"

namespace mpigrad::ops {

void Conv::run(Cuda, Inputs in, Outputs out) const {
  cuda::conv_forward(in[0].dtype(), problem_of(a, in[0], in[1].shape(), out[0]), in[0].raw(), in[1].raw(), out[0].raw());
}

void ConvBiasActivation::run(Cuda, Inputs in, Outputs out) const {
  cuda::conv_forward(in[0].dtype(), problem_of(a, in[0], in[1].shape(), out[0]), in[0].raw(), in[1].raw(), out[0].raw(),
                     {.bias = in[2] ? in[2].raw() : nullptr, .fused = fused});
}

void ConvData::run(Cuda, Inputs in, Outputs out) const {
  cuda::conv_data(in[0].dtype(), problem_of(a, out[0], in[1].shape(), in[0]), in[0].raw(), in[1].raw(), out[0].raw());
}

void ConvWeight::run(Cuda, Inputs in, Outputs out) const {
  cuda::conv_weight(in[0].dtype(), problem_of(a, in[0], out[0].shape(), in[1]), in[0].raw(), in[1].raw(), out[0].raw());
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(Conv)
MPIGRAD_ABSENT(ConvData)
MPIGRAD_ABSENT(ConvWeight)
MPIGRAD_ABSENT(ConvBiasActivation)

}  // namespace mpigrad::ops
#endif
