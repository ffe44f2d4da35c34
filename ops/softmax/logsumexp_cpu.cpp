// Sums of exponentials and shifted, scaled exponentials. The loops over a row or over a few rows use the processor's vector
// units; std::exp would be called element by element.

#include "ops/softmax/logsumexp.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "framework/base/target_clones.h"
#include "ops/kernel/parts.h"

namespace mpigrad::ops {
namespace {

// exp(x) = 2^n exp(r), r = x - n log 2, |r| <= log(2) / 2, by Cephes' polynomial (S. Moshier, expf). 2^n is the product of two
// powers, so that neither overflows; a subnormal result is 0.
MPIGRAD_BODY float exp_of(float x) {
  constexpr float smallest = -87.33654F, largest = 100, magic = 12582912;  // whose unit in the last place is 1
  const float inside = x < smallest ? smallest : x > largest ? largest : x;
  const float shifted = inside * 1.44269504F + magic, n = shifted - magic;
  const float r = (inside - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const std::int32_t power = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic), half = power >> 1;
  const float y = p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((power - half + 127) << 23);
  return x < smallest ? 0.0F : y;
}
MPIGRAD_BODY double exp_of(double x) { return std::exp(x); }

// A finite shift: infinity - infinity is NaN.
template <class T>
T bounded(T largest) {
  constexpr T bound = std::numeric_limits<T>::max();
  return std::clamp(largest, -bound, bound);
}

template <class T>
MPIGRAD_BODY T largest_of(std::int64_t n, const T* x) {
  T largest = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}
template <class T>
MPIGRAD_BODY T sum_of_exp(std::int64_t n, const T* x, T shift) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += exp_of(x[i] - shift);
  return sum;
}
template <class T>
MPIGRAD_BODY void take_larger(std::int64_t n, const T* x, T* largest) {
  for (std::int64_t i = 0; i < n; ++i) largest[i] = x[i] > largest[i] ? x[i] : largest[i];
}
template <class T>
MPIGRAD_BODY void add_exp(std::int64_t n, const T* __restrict x, const T* __restrict shift, T* __restrict sum) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += exp_of(x[i] - shift[i]);
}
template <class T>
MPIGRAD_BODY void scaled_by_one(std::int64_t n, const T* __restrict x, T shift, T scale, T* __restrict y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = exp_of(x[i] - shift) * scale;
}
template <class T>
MPIGRAD_BODY void scaled_by_row(std::int64_t n, const T* __restrict x, const T* __restrict shift, const T* __restrict scale,
                                T* __restrict y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = exp_of(x[i] - shift[i]) * scale[i];
}

#define MPIGRAD_MAKE(T)                                                                                       \
  MPIGRAD_CLONES T largest(std::int64_t n, const T* x) { return largest_of(n, x); }                           \
  MPIGRAD_CLONES T exp_sum(std::int64_t n, const T* x, T shift) { return sum_of_exp(n, x, shift); }           \
  MPIGRAD_CLONES void larger(std::int64_t n, const T* x, T* y) { take_larger(n, x, y); }                      \
  MPIGRAD_CLONES void add_exps(std::int64_t n, const T* x, const T* shift, T* y) { add_exp(n, x, shift, y); } \
  MPIGRAD_CLONES void scale_row(std::int64_t n, const T* x, T a, T b, T* y) { scaled_by_one(n, x, a, b, y); } \
  MPIGRAD_CLONES void scale_row(std::int64_t n, const T* x, const T* a, const T* b, T* y) { scaled_by_row(n, x, a, b, y); }
MPIGRAD_MAKE(float)
MPIGRAD_MAKE(double)
#undef MPIGRAD_MAKE

constexpr std::int64_t parallel_terms_from = 1 << 14, terms = 1024;  // up to so many terms are added in T, the sums of such
                                                                     // blocks in double

// y = log sum exp of each row: x [rows, n]
template <class T>
void along_rows(std::int64_t rows, std::int64_t n, const T* x, T* y) {
  cpu::for_parts(rows, rows * n >= parallel_terms_from, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x + r * n;
      const T shift = bounded(largest(n, row));
      double sum = 0;
      for (std::int64_t i = 0; i < n; i += terms) sum += static_cast<double>(exp_sum(std::min(terms, n - i), row + i, shift));
      y[r] = static_cast<T>(std::log(sum) + static_cast<double>(shift));
    }
  });
}

// y = log sum exp of each column: x [n, columns]
template <class T>
void along_columns(std::int64_t n, std::int64_t columns, const T* x, T* y) {
  constexpr std::int64_t chunk = 256;
#pragma omp parallel for if (n * columns >= parallel_terms_from) schedule(static)
  for (std::int64_t first = 0; first < columns; first += chunk) {
    const std::int64_t count = std::min(chunk, columns - first);
    T shift[chunk], part[chunk];
    double sum[chunk];
    std::fill_n(shift, count, -std::numeric_limits<T>::infinity());
    std::fill_n(sum, count, 0.0);
    for (std::int64_t i = 0; i < n; ++i) larger(count, x + i * columns + first, shift);
    for (std::int64_t j = 0; j < count; ++j) shift[j] = bounded(shift[j]);
    for (std::int64_t begin = 0; begin < n; begin += terms) {
      std::fill_n(part, count, T{0});
      for (std::int64_t i = begin; i < std::min(n, begin + terms); ++i) add_exps(count, x + i * columns + first, shift, part);
      for (std::int64_t j = 0; j < count; ++j) sum[j] += static_cast<double>(part[j]);
    }
    for (std::int64_t j = 0; j < count; ++j) y[first + j] = static_cast<T>(std::log(sum[j]) + static_cast<double>(shift[j]));
  }
}

}  // namespace

void LogSumExpAlong::run(Cpu, Inputs in, Outputs out) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto& shape = in[0].shape();
    const auto before = shape.elements(0, axis), n = shape[axis], behind = shape.elements(axis + 1, shape.rank());
    const T* x = in[0].data<T>();
    T* y = out[0].mutable_data<T>();
    if (behind == 1) return along_rows(before, n, x, y);
    for (std::int64_t i = 0; i < before; ++i) along_columns(n, behind, x + i * n * behind, y + i * behind);
  });
}

void ExpScaled::run(Cpu, Inputs in, Outputs out) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto rows = in[0].dim(0), columns = in[0].dim(1);
    const bool column = in[1].dim(0) == rows && in[1].dim(1) == 1;
    const T *x = in[0].data<T>(), *a = in[1].data<T>(), *b = in[2].data<T>();
    T* y = out[0].mutable_data<T>();
    cpu::for_parts(rows, rows * columns >= parallel_terms_from, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        if (column) scale_row(columns, x + r * columns, a[r], b[r], y + r * columns);
        else scale_row(columns, x + r * columns, a, b, y + r * columns);
      }
    });
  });
}

}  // namespace mpigrad::ops
