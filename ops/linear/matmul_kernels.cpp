// Matrix products: plain loops, and the libraries' products on blocks, each computed by one thread.

#include <omp.h>

#include <algorithm>
#include <array>

#include "framework/base/target_clones.h"
#include "ops/backends/blas/blas.h"
#include "ops/kernel/parallel_errors.h"
#include "ops/kernel/parts.h"
#include "ops/kernel/problems.h"
#include "ops/linear/matmul_kernels.h"

namespace mpigrad::cpu {

namespace {

template <class T>
MPIGRAD_BODY void epilogue_body(std::int64_t n, const T* __restrict bias, scalar::FusedOf<T> fused, T* __restrict y) {
  if (bias != nullptr)
    for (std::int64_t i = 0; i < n; ++i) y[i] += bias[i];
  if (fused.is_relu())  // 0 * y would be -0, and NaN for -infinity
    for (std::int64_t i = 0; i < n; ++i) y[i] = y[i] < T{0} ? T{0} : y[i];
  else if (!fused.is_none())
    for (std::int64_t i = 0; i < n; ++i) y[i] = y[i] < T{0} ? fused.factor * y[i] : y[i];
}

MPIGRAD_CLONES void epilogue_row(std::int64_t n, const float* bias, scalar::FusedOf<float> fused, float* y) {
  epilogue_body(n, bias, fused, y);
}
MPIGRAD_CLONES void epilogue_row(std::int64_t n, const double* bias, scalar::Fused fused, double* y) {
  epilogue_body(n, bias, fused, y);
}

}  // namespace

namespace reference {

// c[b,i,j] = sum_l a[b,i,l] b[b,l,j]
template <class T>
void matmul(const MatmulProblem& p, const T* a, const T* b, T* c, const Epilogue& e) {
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < p.batch * p.m; ++row) {
    const std::int64_t batch = row / p.m, i = row % p.m;
    const T* as = a + batch * p.stride_a;
    const T* bs = b + batch * p.stride_b;
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l)
        sum += static_cast<double>(as[p.transpose_a ? l * p.m + i : i * p.k + l]) *
               static_cast<double>(bs[p.transpose_b ? j * p.k + l : l * p.n + j]);
      if (e.bias != nullptr) sum += static_cast<double>(static_cast<const T*>(e.bias)[j]);
      if (sum < 0) sum = e.fused.below(sum);
      c[row * p.n + j] = static_cast<T>(sum);
    }
  }
}

template void matmul(const MatmulProblem&, const float*, const float*, float*, const Epilogue&);
template void matmul(const MatmulProblem&, const double*, const double*, double*, const Epilogue&);

}  // namespace reference

namespace {

// c[m, n] (+)= a b, sums in T. a has steps along its rows and columns; b is [k, n], ldb apart.
template <class T>
MPIGRAD_BODY void short_sums_body(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t row_step,
                                  std::int64_t column_step, const T* __restrict b, std::int64_t ldb, bool accumulate,
                                  T* __restrict c, std::int64_t ldc) {
  constexpr std::int64_t together = 8;  // sums in registers
  for (std::int64_t i = 0; i < m; ++i, a += row_step, c += ldc) {
    std::int64_t j = 0;
    for (; j + together <= n; j += together) {
      T sums[together];
      for (std::int64_t s = 0; s < together; ++s) sums[s] = accumulate ? c[j + s] : T{0};
      for (std::int64_t l = 0; l < k; ++l)
        for (std::int64_t s = 0; s < together; ++s) sums[s] += a[l * column_step] * b[l * ldb + j + s];
      for (std::int64_t s = 0; s < together; ++s) c[j + s] = sums[s];
    }
    for (; j < n; ++j) {
      T sum = accumulate ? c[j] : T{0};
      for (std::int64_t l = 0; l < k; ++l) sum += a[l * column_step] * b[l * ldb + j];
      c[j] = sum;
    }
  }
}

MPIGRAD_CLONES void short_sums(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t row_step,
                               std::int64_t column_step, const float* b, std::int64_t ldb, bool accumulate, float* c,
                               std::int64_t ldc) {
  short_sums_body(m, n, k, a, row_step, column_step, b, ldb, accumulate, c, ldc);
}
MPIGRAD_CLONES void short_sums(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t row_step,
                               std::int64_t column_step, const double* b, std::int64_t ldb, bool accumulate, double* c,
                               std::int64_t ldc) {
  short_sums_body(m, n, k, a, row_step, column_step, b, ldb, accumulate, c, ldc);
}

}  // namespace

template <class T>
void plain_gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t lda,
                const T* b, std::int64_t ldb, bool accumulate, T* c, std::int64_t ldc) {
  // Sums of `few` products in T, and of these sums in double: a sum of a million products in float is off by a percent.
  constexpr std::int64_t few = 64, columns = 256;
  if (k <= few) {
    // Columns of a transposed b are copied to rows, as many as fit at a time.
    std::array<T, few * few> rows;
    const std::int64_t row_step = transpose_a ? 1 : lda, column_step = transpose_a ? lda : 1;
    for (std::int64_t j0 = 0; transpose_b && j0 < n; j0 += few) {
      const std::int64_t count = std::min(few, n - j0);
      for (std::int64_t j = 0; j < count; ++j)
        for (std::int64_t l = 0; l < k; ++l) rows[static_cast<std::size_t>(l * count + j)] = b[(j0 + j) * ldb + l];
      short_sums(m, count, k, a, row_step, column_step, rows.data(), count, accumulate, c + j0, ldc);
    }
    if (!transpose_b) short_sums(m, n, k, a, row_step, column_step, b, ldb, accumulate, c, ldc);
    return;
  }
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j0 = 0; j0 < n; j0 += columns) {
      const std::int64_t count = std::min(columns, n - j0);
      double sums[columns];
      T part[columns];
      T* row = c + i * ldc + j0;
      for (std::int64_t j = 0; j < count; ++j) sums[j] = accumulate ? static_cast<double>(row[j]) : 0;
      for (std::int64_t l0 = 0; l0 < k; l0 += few) {
        std::fill_n(part, count, T{0});
        for (std::int64_t l = l0; l < std::min(l0 + few, k); ++l) {
          const T factor = transpose_a ? a[l * lda + i] : a[i * lda + l];
          const T* from = transpose_b ? b + j0 * ldb + l : b + l * ldb + j0;
          const std::int64_t step = transpose_b ? ldb : 1;
          for (std::int64_t j = 0; j < count; ++j) part[j] += factor * from[j * step];
        }
        for (std::int64_t j = 0; j < count; ++j) sums[j] += static_cast<double>(part[j]);
      }
      for (std::int64_t j = 0; j < count; ++j) row[j] = static_cast<T>(sums[j]);
    }
}

template <class T>
void apply_epilogue(const Epilogue& e, std::int64_t rows, std::int64_t channel, std::int64_t n, T* y, std::int64_t ld) {
  if (e.empty()) return;
  const T* bias = static_cast<const T*>(e.bias);
  if (bias == nullptr && ld == n) return epilogue_row(rows * n, bias, e.fused.as<T>(), y);  // one call for all rows
  for (std::int64_t r = 0; r < rows; ++r)
    epilogue_row(n, bias == nullptr ? nullptr : bias + channel, e.fused.as<T>(), y + r * ld);
}

template <class T>
void apply_epilogue_parallel(const Epilogue& e, std::int64_t rows, std::int64_t channels, T* y) {
  if (e.empty() || rows * channels == 0) return;
  const std::int64_t chunk = std::max<std::int64_t>(1, 16384 / channels);
#pragma omp parallel for schedule(static) if (rows > chunk)
  for (std::int64_t first = 0; first < rows; first += chunk)
    apply_epilogue(e, std::min(chunk, rows - first), 0, channels, y + first * channels, channels);
}

template void plain_gemm(bool, bool, std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t, const float*,
                         std::int64_t, bool, float*, std::int64_t);
template void plain_gemm(bool, bool, std::int64_t, std::int64_t, std::int64_t, const double*, std::int64_t, const double*,
                         std::int64_t, bool, double*, std::int64_t);
template void apply_epilogue(const Epilogue&, std::int64_t, std::int64_t, std::int64_t, float*, std::int64_t);
template void apply_epilogue(const Epilogue&, std::int64_t, std::int64_t, std::int64_t, double*, std::int64_t);
template void apply_epilogue_parallel(const Epilogue&, std::int64_t, std::int64_t, float*);
template void apply_epilogue_parallel(const Epilogue&, std::int64_t, std::int64_t, double*);

// Batches and blocks of rows or columns, whichever are more, are distributed over the threads.
template <class T>
void matmul(const MatmulProblem& p, const T* a, const T* b, T* c, const Epilogue& e) {
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  constexpr std::int64_t least_block = 16, worth_threads = 1 << 15;
  const std::int64_t lda = p.transpose_a ? p.m : p.k, ldb = p.transpose_b ? p.k : p.n;
  const std::int64_t work = p.batch * p.m * p.n * std::max<std::int64_t>(p.k, 1);
  const std::int64_t threads = work < worth_threads || omp_in_parallel() ? 1 : omp_get_max_threads();
  if (gemm_is_threaded<T>() && p.batch < threads) {
    for (std::int64_t batch = 0; batch < p.batch; ++batch)
      gemm(p.transpose_a, p.transpose_b, p.m, p.n, p.k, a + batch * p.stride_a, lda, b + batch * p.stride_b, ldb, false,
           c + batch * p.m * p.n, p.n);
    apply_epilogue_parallel(e, p.batch * p.m, p.n, c);
    return;
  }
  const bool by_rows = p.m >= p.n;
  const std::int64_t longer = by_rows ? p.m : p.n;
  const std::int64_t wanted = std::clamp<std::int64_t>(ceil_div(threads, p.batch), 1, ceil_div(longer, least_block));
  const std::int64_t block = ceil_div(ceil_div(longer, wanted), least_block) * least_block, blocks = ceil_div(longer, block);
  ParallelErrors errors;
  cpu::for_parts(p.batch * blocks, threads > 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task)
      errors.guard([&] {
        const std::int64_t batch = task / blocks, first = task % blocks * block, count = std::min(block, longer - first);
        const std::int64_t i = by_rows ? first : 0, j = by_rows ? 0 : first, m = by_rows ? count : p.m, n = by_rows ? p.n : count;
        const T* as = a + batch * p.stride_a + (p.transpose_a ? i : i * lda);
        const T* bs = b + batch * p.stride_b + (p.transpose_b ? j * ldb : j);
        T* cs = c + (batch * p.m + i) * p.n + j;
        gemm(p.transpose_a, p.transpose_b, m, n, p.k, as, lda, bs, ldb, false, cs, p.n);
        apply_epilogue(e, m, j, n, cs, p.n);
      });
  });
  errors.rethrow();
}

template void matmul(const MatmulProblem&, const float*, const float*, float*, const Epilogue&);
template void matmul(const MatmulProblem&, const double*, const double*, double*, const Epilogue&);

}  // namespace mpigrad::cpu
