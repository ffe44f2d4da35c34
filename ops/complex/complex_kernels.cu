#include "framework/cuda/launch.cuh"
#include "ops/complex/complex_cuda_kernels.h"
#include "ops/complex/complex_functions.h"

namespace mpigrad::cuda {
namespace {

template <class F, class A, class R>
__global__ void complex_kernel(F f, std::int64_t n, const A* a, R* y) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) y[i] = f(a[i]);
}
template <class F, class A, class B, class R>
__global__ void complex_strided_kernel(F f, StridedWalk<2> walk, std::int64_t n, const A* a, const B* b, R* y) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    std::int64_t at[2];
    walk.offsets(i, at);
    y[i] = f(a[at[0]], b[at[1]]);
  }
}

}  // namespace

template <class F, class A, class R>
void map_complex(const F& f, std::int64_t n, const A* a, R* y, Stream stream) {
  if (n == 0) return;
  launch("complex", complex_kernel<F, A, R>, blocks_for(n), block_threads, stream, f, n, a, y);
}
template <class F, class A, class B, class R>
void map_complex(const F& f, const StridedWalk<2>& walk, std::int64_t n, const A* a, const B* b, R* y, Stream stream) {
  if (n == 0) return;
  launch("complex", complex_strided_kernel<F, A, B, R>, blocks_for(n), block_threads, stream, f, walk, n, a, b, y);
}

#define MPIGRAD_UNARY(F, A, R) template void map_complex(const scalar::F&, std::int64_t, const A*, R*, Stream);
#define MPIGRAD_BINARY(F, A, B, R) \
  template void map_complex(const scalar::F&, const StridedWalk<2>&, std::int64_t, const A*, const B*, R*, Stream);
#define MPIGRAD_OF_PARTS(T)                                                                  \
  MPIGRAD_UNARY(ComplexPart, scalar::Complex<T>, T)                                          \
  MPIGRAD_UNARY(ComplexConj, scalar::Complex<T>, scalar::Complex<T>)                         \
  MPIGRAD_UNARY(ComplexAbs, scalar::Complex<T>, T)                                           \
  MPIGRAD_BINARY(ComplexJoin, T, T, scalar::Complex<T>)                                      \
  MPIGRAD_BINARY(ComplexProduct, scalar::Complex<T>, scalar::Complex<T>, scalar::Complex<T>) \
  MPIGRAD_BINARY(ComplexScale, scalar::Complex<T>, T, scalar::Complex<T>)                    \
  MPIGRAD_BINARY(ComplexQuotient, scalar::Complex<T>, scalar::Complex<T>, scalar::Complex<T>)
MPIGRAD_OF_PARTS(float)
MPIGRAD_OF_PARTS(double)

}  // namespace mpigrad::cuda
