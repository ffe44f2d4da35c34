// The kernel of own_op.cpp for GPUs: y = x exp(-x^2). nvcc compiles this file, the C++ compiler the op; a function with pointer
// arguments connects them. Of the library's headers nvcc reads only those that end in .cuh.

#include "framework/cuda/launch.cuh"

namespace {

using namespace mpigrad;

// There may be more elements than threads: each thread strides over the rest.
template <class T>
__global__ void wavelet_kernel(std::int64_t n, const T* x, T* y) {
  for (std::int64_t i = cuda::first_index(); i < n; i += cuda::grid_stride()) y[i] = x[i] * exp(-x[i] * x[i]);
}

}  // namespace

template <class T>
void wavelet_on_gpu(std::int64_t n, const T* x, T* y, cuda::Stream stream) {
  if (n > 0) cuda::launch("wavelet", wavelet_kernel<T>, cuda::blocks_for(n), cuda::block_threads, stream, n, x, y);
}
template void wavelet_on_gpu(std::int64_t, const float*, float*, cuda::Stream);
template void wavelet_on_gpu(std::int64_t, const double*, double*, cuda::Stream);
