// Optimizers on GPUs in a build without CUDA: no tensor is there.

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "framework/optim/update_cuda.h"

namespace mpigrad::cuda {
namespace {

[[noreturn]] void without_kernels() { fail("[cuda] there are no kernels: {}", unavailable()); }

}  // namespace

void update(DType, std::span<const UpdateSegment>, const SGDRule&) { without_kernels(); }
void update(DType, std::span<const UpdateSegment>, const AdamRule&) { without_kernels(); }
void update(DType, std::span<const UpdateSegment>, const RmspropRule&) { without_kernels(); }
void update(DType, std::span<const UpdateSegment>, const AverageRule&) { without_kernels(); }
void measure(DType, std::span<const UpdateSegment>, const LarsRule&, double*) { without_kernels(); }
void measure(DType, std::span<const UpdateSegment>, const LambRule&, double*) { without_kernels(); }
void update(DType, std::span<const UpdateSegment>, const LarsRule&, const double*) { without_kernels(); }
void update(DType, std::span<const UpdateSegment>, const LambRule&, const double*) { without_kernels(); }
double squared_norm(DType, std::span<const UpdateSegment>) { without_kernels(); }
void clip_factor(std::span<const UpdateSegment>, std::span<const UpdateSegment>, double, double, double*) { without_kernels(); }

}  // namespace mpigrad::cuda
