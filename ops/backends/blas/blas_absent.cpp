// Without OpenBLAS: products of double as plain loops.

#include "ops/backends/blas/blas.h"
#include "ops/backends/implementation.h"

namespace mpigrad::cpu {

std::string blas_kernels() { return {}; }

template <>
bool gemm_is_threaded<double>() {
  return false;
}

bool use_blas_kernels(const std::string&) { return false; }
bool choose_blas_kernels() { return false; }

template <>
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t lda,
          const double* b, std::int64_t ldb, bool accumulate, double* c, std::int64_t ldc) {
  plain_gemm(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, accumulate, c, ldc);
}

}  // namespace mpigrad::cpu
