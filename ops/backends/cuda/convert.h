#pragma once
// Kernels that convert operands to the layout in memory that a library needs, and results to that of an op. T is float, double,
// BFloat16 or Float16; 16-bit types are computed in float32 and rounded once. Sums have a fixed order.

#include <cstdint>

#include "framework/tensor/half.h"
#include "ops/kernel/problems.h"

namespace mpigrad::cuda {

using namespace kernel;

// to[n, i, c] = from[n, i + offset, c], or 0 outside `from`: pads, crops and extends channels, and the inverse of each.
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

// x, y: [rows, channels], which may be the same memory; y = x + bias (if there is one), then the fused activation. ReLU gives +0;
// NaN stays NaN.
template <class T>
void bias_activation(std::int64_t rows, std::int64_t channels, const T* x, const T* bias, scalar::Fused fused, T* y,
                     void* stream);

// Test data for activations that may not keep NaN and infinity: a bias of alternating NaN and +infinity; and *found = 1 if an
// element of y [n / channels, channels] computed with it is finite.
template <class T>
void special_bias(std::int64_t channels, T* bias, void* stream);
template <class T>
void find_ordinary(std::int64_t rows, std::int64_t channels, const T* y, std::int32_t* found, void* stream);

// sum = x, or sum += x; then y = sum. For 16-bit types the sum is float32, so that it is rounded once.
template <class T, class Sum>
void add_up(std::int64_t n, const T* x, Sum* sum, bool first, void* stream);
template <class T, class Sum>
void round_sum(std::int64_t n, const Sum* sum, T* y, void* stream);

}  // namespace mpigrad::cuda
