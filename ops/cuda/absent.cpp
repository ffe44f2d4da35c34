// All ops but those of cuDNN and cuBLAS, without CUDA.

#include "ops/cuda/absent.h"

#include "ops/activation.h"
#include "ops/elementwise_ops.h"
#include "ops/logsumexp.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/resample.h"
#include "ops/running.h"
#include "ops/scalar.h"
#include "ops/softmax.h"
#include "ops/views.h"

namespace mpigrad::ops {

// Lists of macros that end without semicolons.
// clang-format off
template <class F> MPIGRAD_ABSENT(Unary<F>)
template <class F> MPIGRAD_ABSENT(Binary<F>)
template <class F> MPIGRAD_ABSENT(Compare<F>)
#define MPIGRAD_MAKE(F, ...) template void Unary<F>::run(Cuda, Inputs, Outputs) const;
MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F, ...) template void Binary<F>::run(Cuda, Inputs, Outputs) const;
MPIGRAD_BINARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F, ...) template void Compare<F>::run(Cuda, Inputs, Outputs) const;
MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

MPIGRAD_ABSENT(Where)
MPIGRAD_ABSENT(Cast)
MPIGRAD_ABSENT(Permute)
MPIGRAD_ABSENT(Slice)
MPIGRAD_ABSENT(SlicePut)
MPIGRAD_ABSENT(Concatenate)
MPIGRAD_ABSENT(Flip)
MPIGRAD_ABSENT(Take)
MPIGRAD_ABSENT(ScatterAdd)
MPIGRAD_ABSENT(OneHot)
MPIGRAD_ABSENT(MapLines)
MPIGRAD_ABSENT(Sum)
MPIGRAD_ABSENT(BroadcastTo)
MPIGRAD_ABSENT(Extremum)
MPIGRAD_ABSENT(ArgMax)
MPIGRAD_ABSENT(Softmax)
MPIGRAD_ABSENT(LogSoftmax)
MPIGRAD_ABSENT(BiasActivation)
MPIGRAD_ABSENT(BiasActivationAdjoint)
MPIGRAD_ABSENT(LogSumExpAlong)
MPIGRAD_ABSENT(ExpScaled)
MPIGRAD_ABSENT(ChannelMoments)
MPIGRAD_ABSENT(ChannelAffine)
MPIGRAD_ABSENT(ChannelDots)
MPIGRAD_ABSENT(NormAdjoint)
MPIGRAD_ABSENT(RunningAverages)
MPIGRAD_ABSENT(LabelMask)
    // clang-format on

    void random_on_gpu(const RandomNumbers&, const Box&, const Shape&, Tensor&) {
  detail::refuse_cuda("random");
}

}  // namespace mpigrad::ops
