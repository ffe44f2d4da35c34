#include <type_traits>

#include "framework/cuda/element.cuh"
#include "framework/cuda/kernels.h"
#include "framework/cuda/launch.cuh"

namespace mpigrad::cuda {
namespace {

template <class T>
__global__ void fill_kernel(T* y, T value, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) y[i] = value;
}

template <class T>
__global__ void move_kernel(T* to, const T* from, StridedWalk<2> walk, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) {
    std::int64_t at[2];
    walk.offsets(i, at);
    to[at[0]] = from[at[1]];
  }
}

template <class T>
__global__ void add_kernel(T* to, const T* from, StridedWalk<2> walk, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) {
    std::int64_t at[2];
    walk.offsets(i, at);
    to[at[0]] = store<T>(load(to[at[0]]) + load(from[at[1]]));
  }
}

template <class X, class T>
__global__ void look_up_kernel(const X* x, const T* table, T* y, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) y[i] = table[x[i]];
}

__global__ void set_scalars_kernel(StepScalars* to, StepScalars scalars) { *to = scalars; }

}  // namespace

template <class T>
void fill_elements(T* y, T value, std::int64_t count, Stream stream) {
  if (count == 0) return;
  launch("fill", fill_kernel<T>, blocks_for(count), block_threads, stream, y, value, count);
}
template void fill_elements(std::uint8_t*, std::uint8_t, std::int64_t, Stream);
template void fill_elements(std::uint16_t*, std::uint16_t, std::int64_t, Stream);
template void fill_elements(std::uint32_t*, std::uint32_t, std::int64_t, Stream);
template void fill_elements(std::uint64_t*, std::uint64_t, std::int64_t, Stream);

template <int bytes>
void move_elements(void* to, const void* from, const StridedWalk<2>& walk, std::int64_t count, Stream stream) {
  using T = std::conditional_t<
      bytes == 1, std::uint8_t,
      std::conditional_t<bytes == 2, std::uint16_t,
                         std::conditional_t<bytes == 4, std::uint32_t, std::conditional_t<bytes == 8, std::uint64_t, uint4>>>>;
  launch("move", move_kernel<T>, blocks_for(count), block_threads, stream, static_cast<T*>(to), static_cast<const T*>(from), walk,
         count);
}
template void move_elements<1>(void*, const void*, const StridedWalk<2>&, std::int64_t, Stream);
template void move_elements<2>(void*, const void*, const StridedWalk<2>&, std::int64_t, Stream);
template void move_elements<4>(void*, const void*, const StridedWalk<2>&, std::int64_t, Stream);
template void move_elements<8>(void*, const void*, const StridedWalk<2>&, std::int64_t, Stream);
template void move_elements<16>(void*, const void*, const StridedWalk<2>&, std::int64_t, Stream);

template <class X, class T>
void look_up_elements(const X* x, const T* table, T* y, std::int64_t count, Stream stream) {
  if (count == 0) return;
  launch("look_up", look_up_kernel<X, T>, blocks_for(count), block_threads, stream, x, table, y, count);
}
template void look_up_elements(const std::uint8_t*, const float*, float*, std::int64_t, Stream);
template void look_up_elements(const std::uint8_t*, const double*, double*, std::int64_t, Stream);
template void look_up_elements(const std::uint16_t*, const float*, float*, std::int64_t, Stream);
template void look_up_elements(const std::uint16_t*, const double*, double*, std::int64_t, Stream);

template <class T>
void add_elements(T* to, const T* from, const StridedWalk<2>& walk, std::int64_t count, Stream stream) {
  launch("add", add_kernel<T>, blocks_for(count), block_threads, stream, to, from, walk, count);
}
#define MPIGRAD_MAKE(T) template void add_elements(T*, const T*, const StridedWalk<2>&, std::int64_t, Stream);
MPIGRAD_MAKE(float)
MPIGRAD_MAKE(double)
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(Float16)
MPIGRAD_MAKE(std::int64_t)
MPIGRAD_MAKE(std::int32_t)
MPIGRAD_MAKE(std::int16_t)
MPIGRAD_MAKE(std::uint8_t)
MPIGRAD_MAKE(bool)
#undef MPIGRAD_MAKE

void set_scalars(StepScalars* to, const StepScalars& scalars, Stream stream) {
  launch("set_scalars", set_scalars_kernel, 1, 1, stream, to, scalars);
}

}  // namespace mpigrad::cuda
