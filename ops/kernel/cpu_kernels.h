#pragma once
// CPU kernels as functions of shapes and pointers; they know no tensors and no tapes. Included inside ops, by kernel tests
// and by benchmarks only. Activations are [N, D, H, W, C], convolution weights [K, kd, kh, kw, C/groups], all row-major.
//
// Every function has two versions where a library offers a faster one: namespace `reference` (plain loops, any of float and
// double, the arbiter) and the one without a namespace, which picks oneDNN or OpenBLAS for float32 and must agree with it.

#include <cstdint>

#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

using namespace kernel;

// y = conv(x, w) (+ bias, activation);  gx = adjoint in x of gy;  gw = adjoint in w of gy. Outputs are overwritten.
template <class T>
void conv_forward(const ConvProblem&, const T* x, const T* w, T* y, const Epilogue& = {});
template <class T>
void conv_data(const ConvProblem&, const T* gy, const T* w, T* gx, const Epilogue& = {});  // bias [C] on gx
template <class T>
void conv_weight(const ConvProblem&, const T* x, const T* gy, T* gw);

// Average pooling that always divides by the kernel's volume (padding counts as zeros); other divisors are a product by a
// constant at the level of ops. gx is its transpose.
template <class T>
void avg_pool_forward(const PoolProblem&, const T* x, T* y);
template <class T>
void avg_pool_adjoint(const PoolProblem&, const T* gy, T* gx);
// The same of f(x), f(x) = x <= 0 ? slope * x : x, and signs: [batch, in, ceil(channels / 8)], bit c % 8 of byte c / 8 tells
// whether !(x <= 0). Given these, the transpose: gx = f'(x) * (adjoint of the average), and y = average of f'(x) * h.
template <class T>
void leaky_avg_pool(const PoolProblem&, double slope, const T* x, T* y, std::uint8_t* signs);
template <class T>
void leaky_avg_pool_adjoint(const PoolProblem&, double slope, const T* gy, const std::uint8_t* signs, T* gx);
template <class T>
void signed_avg_pool(const PoolProblem&, double slope, const T* h, const std::uint8_t* signs, T* y);
// Maximum over the window (padding never wins) and `winner`, the place of the maximum in the window, kernel-row-major
// (the first one on ties); NaN wins. A window wholly in padding gives -infinity and winner -1.
template <class T>
void max_pool_forward(const PoolProblem&, const T* x, T* y, std::int32_t* winner);
// gx[position of winner] += gy, and the transpose of that: y[o] = x[position of winner] (0 where winner is -1).
template <class T>
void max_pool_scatter(const PoolProblem&, const T* gy, const std::int32_t* winner, T* gx);
template <class T>
void max_pool_gather(const PoolProblem&, const T* x, const std::int32_t* winner, T* y);

template <class T>
void matmul(const MatmulProblem&, const T* a, const T* b, T* c, const Epilogue& = {});  // bias [n]

// Rows of `channels` values, channels last; sums accumulate in double.
// mean[c] and m2[c] = sum (x - mean)^2, in two passes over cache-sized chunks combined by Chan's formula.
template <class T>
void channel_moments(std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* m2);
// y = leaky_relu((x - m) * a + b, slope) per channel
template <class T>
void channel_affine(std::int64_t rows, std::int64_t channels, const T* x, const T* m, const T* a, const T* b, double slope, T* y);
// y = leaky_relu(x + bias, slope);  inner = y <= 0 ? slope * g : g, which may be g itself, and sums[c] = sum inner
template <class T>
void bias_activation(std::int64_t rows, std::int64_t channels, const T* x, const T* bias, double slope, T* y);
template <class T>
void bias_activation_adjoint(std::int64_t rows, std::int64_t channels, const T* g, const T* y, double slope, T* inner, T* sums);
// sums[c] = sum g, dots[c] = sum g * (x - m)
template <class T>
void channel_dots(std::int64_t rows, std::int64_t channels, const T* g, const T* x, const T* m, T* sums, T* dots);
// See ops/norm/channel_norm.h.
template <class T>
struct NormOfChannels {
  double slope = 1;
  const T *m = nullptr, *a = nullptr, *b = nullptr, *inverse = nullptr;
};
template <class T>
void norm_adjoint(std::int64_t rows, std::int64_t channels, const T* g, const T* x, const NormOfChannels<T>& of, T* gx, T* sums,
                  T* dots);

// x, y: [rows, n], softmax over each row. The axis is thus the last one; ops permute where it is not.
template <class T>
void softmax(std::int64_t rows, std::int64_t n, const T* x, T* y);
template <class T>
void log_softmax(std::int64_t rows, std::int64_t n, const T* x, T* y);

namespace reference {
template <class T>
void conv_forward(const ConvProblem&, const T* x, const T* w, T* y, const Epilogue& = {});
template <class T>
void conv_data(const ConvProblem&, const T* gy, const T* w, T* gx, const Epilogue& = {});
template <class T>
void conv_weight(const ConvProblem&, const T* x, const T* gy, T* gw);
template <class T>
void avg_pool_forward(const PoolProblem&, const T* x, T* y);
template <class T>
void avg_pool_adjoint(const PoolProblem&, const T* gy, T* gx);
template <class T>
void matmul(const MatmulProblem&, const T* a, const T* b, T* c, const Epilogue& = {});
}  // namespace reference

}  // namespace mpigrad::cpu
