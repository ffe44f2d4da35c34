#pragma once
// Our own kernels around windows and products, as functions of shapes, pointers and a stream: pooling (pool.cu,
// max_pool.cu, leaky_pool.cu), and what brings operands into the form that a library wants (convert.cu). T is float, double,
// BFloat16 or Float16; 16-bit types are computed with as float32 and rounded once. Sums have a fixed order.

#include <cstdint>

#include "framework/tensor/half.h"
#include "ops/problems.h"

namespace mpigrad::cuda {

using namespace kernel;

// Pools of cubes of 2 or 3 inputs that are 2 apart have kernels of their own, with the results of those for windows of any form
// to the bit; tests compare them. `marching`: where threads may go along the depth they do, also where that leaves few of them.
enum class PoolKernels : std::uint8_t { fitting, marching, any_form };

// The meaning of every function of the CPU's of the same name, ties, NaN and windows wholly in padding included.
template <class T>
void avg_pool_forward(const PoolProblem& problem, const T* x, T* y, void* stream, PoolKernels = PoolKernels::fitting);
template <class T>
void avg_pool_adjoint(const PoolProblem& problem, const T* gy, T* gx, void* stream, PoolKernels = PoolKernels::fitting);
template <class T>
void leaky_avg_pool(const PoolProblem& problem, double slope, const T* x, T* y, std::uint8_t* signs, void* stream,
                    PoolKernels = PoolKernels::fitting);
template <class T>
void signed_avg_pool(const PoolProblem& problem, double slope, const T* h, const std::uint8_t* signs, T* y, void* stream,
                     PoolKernels = PoolKernels::fitting);
template <class T>
void leaky_avg_pool_adjoint(const PoolProblem& problem, double slope, const T* gy, const std::uint8_t* signs, T* gx, void* stream,
                            PoolKernels = PoolKernels::fitting);
template <class T>
void max_pool_forward(const PoolProblem& problem, const T* x, T* y, std::int32_t* winner, void* stream,
                      PoolKernels = PoolKernels::fitting);
template <class T>
void max_pool_scatter(const PoolProblem& problem, const T* gy, const std::int32_t* winner, T* gx, void* stream,
                      PoolKernels = PoolKernels::fitting);
template <class T>
void max_pool_gather(const PoolProblem& problem, const T* x, const std::int32_t* winner, T* y, void* stream,
                     PoolKernels = PoolKernels::fitting);

// to[n, i, c] = from[n, i + offset, c], or 0 outside of `from`: pads, crops and fills up channels, and undoes each of them.
struct Box {
  std::int64_t batch = 0;
  Extent3 from{}, to{}, offset{};
  std::int64_t from_channels = 0, to_channels = 0;
};
// Elements of `width` bytes: 2, 4 or 8.
void move_box(const Box& box, std::int64_t width, const void* from, void* to, void* stream);
// from: [batch, rows, columns] -> to: [batch, columns, rows]
void transpose(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t width, const void* from, void* to,
               void* stream);

// x, y: [rows, channels], which may be one; y = x + bias (if there is one); y = y < 0 ? slope * y : y. slope 0 gives +0, NaN
// stays.
template <class T>
void bias_activation(std::int64_t rows, std::int64_t channels, const T* x, const T* bias, double slope, T* y, void* stream);

// What tells whether an activation keeps NaN and infinity: a bias of NaN and +infinity in turns; and *found = 1 if an element of
// y [n / channels, channels] that was made with it is an ordinary number.
template <class T>
void special_bias(std::int64_t channels, T* bias, void* stream);
template <class T>
void find_ordinary(std::int64_t rows, std::int64_t channels, const T* y, std::int32_t* found, void* stream);

// sum = x, or sum += x; then y = sum. Of 16-bit numbers the sum is float32, so that it is rounded once.
template <class T, class Sum>
void add_up(std::int64_t n, const T* x, Sum* sum, bool first, void* stream);
template <class T, class Sum>
void round_sum(std::int64_t n, const Sum* sum, T* y, void* stream);

}  // namespace mpigrad::cuda
