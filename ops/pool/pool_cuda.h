#pragma once
// Kernels of pools as functions of shapes, pointers and a stream. T is float, double, BFloat16 or
// Float16; 16-bit types are computed in float32 and rounded once. Sums have a fixed order.

#include <cstdint>

#include "framework/tensor/half.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cuda {

using namespace kernel;

// Pools of cubes of 2 or 3 inputs with stride 2 have kernels of their own, with results equal bit for bit to those of the kernels
// for any window; tests compare them. `marching`: threads march along the depth wherever they can, even if that leaves few
// threads.
enum class PoolKernels : std::uint8_t { fitting, marching, any_form };

// Each function means the same as the CPU function of that name, including ties, NaN and windows wholly in padding.
template <class T>
void avg_pool_forward(const PoolProblem& problem, const T* x, T* y, void* stream, PoolKernels = PoolKernels::fitting);
template <class T>
void avg_pool_adjoint(const PoolProblem& problem, const T* gy, T* gx, void* stream, PoolKernels = PoolKernels::fitting);
template <class T>
void leaky_avg_pool(const PoolProblem& problem, scalar::Fused fused, const T* x, T* y, std::uint8_t* signs, void* stream,
                    PoolKernels = PoolKernels::fitting);
template <class T>
void signed_avg_pool(const PoolProblem& problem, scalar::Fused fused, const T* h, const std::uint8_t* signs, T* y, void* stream,
                     PoolKernels = PoolKernels::fitting);
template <class T>
void leaky_avg_pool_adjoint(const PoolProblem& problem, scalar::Fused fused, const T* gy, const std::uint8_t* signs, T* gx,
                            void* stream, PoolKernels = PoolKernels::fitting);
template <class T>
void max_pool_forward(const PoolProblem& problem, const T* x, T* y, std::int32_t* winner, void* stream,
                      PoolKernels = PoolKernels::fitting);
template <class T>
void max_pool_scatter(const PoolProblem& problem, const T* gy, const std::int32_t* winner, T* gx, void* stream,
                      PoolKernels = PoolKernels::fitting);
template <class T>
void max_pool_gather(const PoolProblem& problem, const T* x, const std::int32_t* winner, T* y, void* stream,
                     PoolKernels = PoolKernels::fitting);

}  // namespace mpigrad::cuda
