#pragma once
// CPU kernels as functions of shapes and pointers; they know no tensors and no tapes. Included by ops/cpu/*.cpp and by kernel
// tests and benchmarks only. Activations are [N, D, H, W, C], convolution weights [K, kd, kh, kw, C/groups], all row-major.
//
// Every function has two versions where a library offers a faster one: namespace `reference` (plain loops, any of float and
// double, the arbiter) and the one without a namespace, which picks oneDNN or OpenBLAS for float32 and must agree with it.

#include <array>
#include <cstdint>

namespace mpigrad::cpu {

using Extent3 = std::array<std::int64_t, 3>;

// Cross-correlation  y[n,o,k] = sum_{t,c} x[n, o*stride + t*dilation - pad_low, c] w[k,t,c];  x is zero outside [0, in).
// `out` is given: positions beyond the right edge are zeros as well, so the right padding is implied (and may be negative).
struct ConvProblem {
  std::int64_t batch = 0;
  Extent3 in{}, out{}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad_low{0, 0, 0};
  std::int64_t in_channels = 0, out_channels = 0, groups = 1;
  bool operator==(const ConvProblem&) const = default;
};

// Activation that may ride on a convolution or a matmul: y < 0 ? slope * y : y. slope 1 is none, 0 is ReLU (+0, also for
// -infinity). NaN stays NaN.
struct Epilogue {
  const void* bias = nullptr;  // [K] of the same type, or null
  double slope = 1.0;
};

// y = conv(x, w) (+ bias, activation);  gx = adjoint in x of gy;  gw = adjoint in w of gy. Outputs are overwritten.
template <class T>
void conv_forward(const ConvProblem&, const T* x, const T* w, T* y, const Epilogue& = {});
template <class T>
void conv_data(const ConvProblem&, const T* gy, const T* w, T* gx, const Epilogue& = {});  // bias [C] on gx
template <class T>
void conv_weight(const ConvProblem&, const T* x, const T* gy, T* gw);

struct PoolProblem {
  std::int64_t batch = 0;
  Extent3 in{}, out{}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad_low{0, 0, 0};
  std::int64_t channels = 0;
  bool operator==(const PoolProblem&) const = default;
};

// Average pooling that always divides by the kernel's volume (padding counts as zeros); other divisors are a product by a
// constant at the level of ops. gx is its transpose.
template <class T>
void avg_pool_forward(const PoolProblem&, const T* x, T* y);
template <class T>
void avg_pool_adjoint(const PoolProblem&, const T* gy, T* gx);
// Maximum over the window (padding never wins) and `winner`, the place of the maximum in the window, kernel-row-major
// (the first one on ties); NaN wins. A window wholly in padding gives -infinity and winner -1.
template <class T>
void max_pool_forward(const PoolProblem&, const T* x, T* y, std::int32_t* winner);
// gx[position of winner] += gy, and the transpose of that: y[o] = x[position of winner] (0 where winner is -1).
template <class T>
void max_pool_scatter(const PoolProblem&, const T* gy, const std::int32_t* winner, T* gx);
template <class T>
void max_pool_gather(const PoolProblem&, const T* x, const std::int32_t* winner, T* y);

// c[b] = op(a[b]) op(b[b]), c: [batch, m, n]; a is [m, k] or, transposed, [k, m]; b is [k, n] or [n, k]. Strides between
// batches in elements; 0 repeats the operand. k == 0 gives zeros.
struct MatmulProblem {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t stride_a = 0, stride_b = 0;
  bool operator==(const MatmulProblem&) const = default;
};
template <class T>
void matmul(const MatmulProblem&, const T* a, const T* b, T* c, const Epilogue& = {});  // bias [n]

// Rows of `channels` values, channels last; sums accumulate in double.
// mean[c] and m2[c] = sum (x - mean)^2, in two passes over cache-sized chunks combined by Chan's formula.
template <class T>
void channel_moments(std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* m2);
// y = (x - m) * a + b per channel
template <class T>
void channel_affine(std::int64_t rows, std::int64_t channels, const T* x, const T* m, const T* a, const T* b, T* y);
// sums[c] = sum g, dots[c] = sum g * (x - m)
template <class T>
void channel_dots(std::int64_t rows, std::int64_t channels, const T* g, const T* x, const T* m, T* sums, T* dots);

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
