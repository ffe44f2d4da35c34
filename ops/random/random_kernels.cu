// Random numbers keyed by global index. Compiled without contraction of products and sums, as on the CPU.

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"
#include "ops/kernel/element_types.h"
#include "ops/random/random_cuda_kernels.h"

namespace mpigrad::cuda {
namespace {

template <class T>
__global__ void random_kernel(RandomProblem problem, std::int64_t n, T* y) {
  if (problem.live) problem.random = problem.random.child(problem.live->step);
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    const auto counter = static_cast<std::uint64_t>(problem.first + problem.place.offset(i));
    double value = 0;
    switch (problem.kind) {
      case 0:  // uniform
        value = min(problem.a + problem.b * problem.random.uniform(counter), problem.limit);
        break;
      case 1:  // normal
        value = problem.a + problem.b * problem.random.normal(counter);
        break;
      default:  // mask
        value = problem.random.uniform(counter) < problem.a ? problem.b : 0;
        break;
    }
    y[i] = store<T>(value);
  }
}

}  // namespace

template <class T>
void random(const RandomProblem& problem, std::int64_t n, T* y, Stream stream) {
  if (n == 0) return;
  launch("random", random_kernel<T>, blocks_for(n), block_threads, stream, problem, n, y);
}

#define MPIGRAD_MAKE(T) template void random(const RandomProblem&, std::int64_t, T*, Stream);
MPIGRAD_FLOATING_TYPES(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
