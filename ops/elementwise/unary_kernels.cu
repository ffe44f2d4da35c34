// One kernel for each function of one argument and floating-point type.

#include "ops/elementwise/elementwise_cuda_kernels.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/element_types.h"
#include "ops/kernel/map.cuh"

namespace mpigrad::cuda {

template <class F, class T>
void unary(const F& f, std::int64_t n, const T* x, T* y, Stream stream) {
  map(f, n, stream, "unary", y, x);
}

#define MPIGRAD_MAKE(F, ...)                                                               \
  template void unary(const scalar::F&, std::int64_t, const float*, float*, Stream);       \
  template void unary(const scalar::F&, std::int64_t, const double*, double*, Stream);     \
  template void unary(const scalar::F&, std::int64_t, const BFloat16*, BFloat16*, Stream); \
  template void unary(const scalar::F&, std::int64_t, const Float16*, Float16*, Stream);
MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
