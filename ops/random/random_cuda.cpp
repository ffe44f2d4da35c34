// Random numbers on GPUs: calls the kernel on tensors.

#include "ops/kernel/absent.h"
#include "ops/random/random.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "framework/cuda/graph.h"
#include "ops/kernel/gpu_tensors.h"
#include "ops/random/random_cuda_kernels.h"

namespace mpigrad::ops {

void random_on_gpu(const RandomNumbers& numbers, const Box& box, const Shape& global, Tensor& y) {
  const auto strides = global.strides();
  const auto* live = cuda::live_scalars();
  require(numbers.step || !cuda::capturing(), "[graph] random numbers would be the same in every repetition of a captured step");
  cuda::RandomProblem problem{.kind = static_cast<int>(numbers.kind),
                              .random = numbers.step && !live ? numbers.random.child(*numbers.step) : numbers.random,
                              .a = numbers.a,
                              .b = numbers.b,
                              .limit = numbers.limit,
                              .place = StridedWalk<1>(walk_of(y.shape(), strides).collapsed()),
                              .first = 0,
                              .live = live};
  for (int d = 0; d < global.rank(); ++d) problem.first += box.begin[d] * strides[static_cast<std::size_t>(d)];
  visit_any_floating(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::random(problem, y.elements(), written<T>(y), cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

void random_on_gpu(const RandomNumbers&, const Box&, const Shape&, Tensor&) { detail::refuse_cuda("random"); }

}  // namespace mpigrad::ops
#endif
