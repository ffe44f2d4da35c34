#ifndef MPIGRAD_FRAMEWORK_BASE_HOST_DEVICE_H
#define MPIGRAD_FRAMEWORK_BASE_HOST_DEVICE_H
// Marks scalar functions that CPU kernels and CUDA kernels share. Empty without nvcc.

#ifdef __CUDACC__
#define MPIGRAD_HOST_DEVICE __host__ __device__
#else
#define MPIGRAD_HOST_DEVICE
#endif

#endif
