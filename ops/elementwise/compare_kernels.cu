// Comparisons, selection and conversion.

#include "ops/elementwise/elementwise_cuda_kernels.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/element_types.h"
#include "ops/kernel/map.cuh"

namespace mpigrad::cuda {
namespace {

template <class F, class T>
__global__ void compare_kernel(F f, StridedWalk<2> walk, std::int64_t n, const T* a, const T* b, bool* y) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    std::int64_t at[2];
    walk.offsets(i, at);
    y[i] = f(load(a[at[0]]), load(b[at[1]]));
  }
}

template <class T>
__global__ void where_kernel(StridedWalk<3> walk, std::int64_t n, const bool* c, const T* a, const T* b, T* y) {
  for (std::int64_t i = first_index(); i < n; i += grid_stride()) {
    std::int64_t at[3];
    walk.offsets(i, at);
    y[i] = c[at[0]] ? a[at[1]] : b[at[2]];
  }
}

struct Same {
  __device__ auto operator()(auto x) const { return x; }
};

}  // namespace

template <class F, class T>
void compare(const F& f, const StridedWalk<2>& walk, std::int64_t n, const T* a, const T* b, bool* y, Stream stream) {
  if (n == 0) return;
  launch("compare", compare_kernel<F, T>, blocks_for(n), block_threads, stream, f, walk, n, a, b, y);
}

template <class T>
void where(const StridedWalk<3>& walk, std::int64_t n, const bool* c, const T* a, const T* b, T* y, Stream stream) {
  if (n == 0) return;
  launch("where", where_kernel<T>, blocks_for(n), block_threads, stream, walk, n, c, a, b, y);
}

template <class From, class To>
void cast(std::int64_t n, const From* x, To* y, Stream stream) {
  map(Same{}, n, stream, "cast", y, x);
}

#define MPIGRAD_COMPARE(F, T) \
  template void compare(const scalar::F&, const StridedWalk<2>&, std::int64_t, const T*, const T*, bool*, Stream);
#define MPIGRAD_MAKE(F, ...)       \
  MPIGRAD_COMPARE(F, float)        \
  MPIGRAD_COMPARE(F, double)       \
  MPIGRAD_COMPARE(F, BFloat16)     \
  MPIGRAD_COMPARE(F, Float16)      \
  MPIGRAD_COMPARE(F, std::int64_t) \
  MPIGRAD_COMPARE(F, std::int32_t) \
  MPIGRAD_COMPARE(F, std::int16_t) \
  MPIGRAD_COMPARE(F, std::uint8_t) \
  MPIGRAD_COMPARE(F, bool)
MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

#define MPIGRAD_MAKE(T) template void where(const StridedWalk<3>&, std::int64_t, const bool*, const T*, const T*, T*, Stream);
MPIGRAD_WIDTHS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

#define MPIGRAD_CAST(From, To) template void cast(std::int64_t, const From*, To*, Stream);
#define MPIGRAD_MAKE(From)         \
  MPIGRAD_CAST(From, float)        \
  MPIGRAD_CAST(From, double)       \
  MPIGRAD_CAST(From, BFloat16)     \
  MPIGRAD_CAST(From, Float16)      \
  MPIGRAD_CAST(From, std::int64_t) \
  MPIGRAD_CAST(From, std::int32_t) \
  MPIGRAD_CAST(From, std::int16_t) \
  MPIGRAD_CAST(From, std::uint8_t) \
  MPIGRAD_CAST(From, bool)         \
  MPIGRAD_CAST(From, std::uint16_t)
MPIGRAD_ALL_TYPES(MPIGRAD_MAKE)
MPIGRAD_MAKE(std::uint16_t)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
