// Functions of two arguments: packed for equal shapes of floating-point types, by strides for the rest.

#include "ops/elementwise/elementwise_cuda_kernels.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/element_types.h"
#include "ops/kernel/map.cuh"

namespace mpigrad::cuda {
namespace {

template <class F, class T>
__global__ void strided_kernel(F f, StridedWalk<2> walk, std::int64_t n, const T* a, const T* b, T* y) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    std::int64_t at[2];
    walk.offsets(i, at);
    y[i] = store<T>(f(load(a[at[0]]), load(b[at[1]])));
  }
}

}  // namespace

template <class F, class T>
void binary(const F& f, std::int64_t n, const T* a, const T* b, T* y, Stream stream) {
  map(f, n, stream, "binary", y, a, b);
}

template <class F, class T>
void binary_strided(const F& f, const StridedWalk<2>& walk, std::int64_t n, const T* a, const T* b, T* y, Stream stream) {
  if (n == 0) return;
  launch("binary", strided_kernel<F, T>, blocks_for(n), block_threads, stream, f, walk, n, a, b, y);
}

#define MPIGRAD_PACKED(F, T) template void binary(const scalar::F&, std::int64_t, const T*, const T*, T*, Stream);
#define MPIGRAD_STRIDED(F, T) \
  template void binary_strided(const scalar::F&, const StridedWalk<2>&, std::int64_t, const T*, const T*, T*, Stream);
#define MPIGRAD_OF_ONE_SHAPE(F, ...) \
  MPIGRAD_PACKED(F, float)           \
  MPIGRAD_PACKED(F, double)          \
  MPIGRAD_PACKED(F, BFloat16)        \
  MPIGRAD_PACKED(F, Float16)
#define MPIGRAD_OF_FLOATING(F, ...) \
  MPIGRAD_OF_ONE_SHAPE(F)           \
  MPIGRAD_STRIDED(F, float)         \
  MPIGRAD_STRIDED(F, double)        \
  MPIGRAD_STRIDED(F, BFloat16)      \
  MPIGRAD_STRIDED(F, Float16)
#define MPIGRAD_OF_INTEGRAL(F, ...) \
  MPIGRAD_STRIDED(F, std::int64_t)  \
  MPIGRAD_STRIDED(F, std::int32_t)  \
  MPIGRAD_STRIDED(F, std::int16_t)  \
  MPIGRAD_STRIDED(F, std::uint8_t)  \
  MPIGRAD_STRIDED(F, bool)
MPIGRAD_ARITHMETIC_FUNCTIONS(MPIGRAD_OF_FLOATING)
MPIGRAD_ARITHMETIC_FUNCTIONS(MPIGRAD_OF_INTEGRAL)
MPIGRAD_FLOATING_FUNCTIONS(MPIGRAD_OF_FLOATING)
MPIGRAD_INTEGRAL_FUNCTIONS(MPIGRAD_OF_INTEGRAL)
MPIGRAD_ADJOINT_FUNCTIONS(MPIGRAD_OF_ONE_SHAPE)

}  // namespace mpigrad::cuda
