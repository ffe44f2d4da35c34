// Matrix products of float by oneDNN.

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>

#include "framework/base/error.h"
#include "ops/backends/blas/blas.h"
#include "ops/backends/onednn/held_signals.h"

namespace mpigrad::cpu {

template <>
bool gemm_is_threaded<float>() {
  return true;
}

template <>
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
          const float* b, std::int64_t ldb, bool accumulate, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate)
      for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, 0.0F);
    return;
  }
  if (m * n * k < tiny_product) return plain_gemm(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, accumulate, c, ldc);
  const HeldSignals held;
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0F, a, lda, b, ldb,
                                          accumulate ? 1.0F : 0.0F, c, ldc);
  require(status == dnnl_success, "[matmul] oneDNN: sgemm returned status {}: m {}, n {}, k {}", static_cast<int>(status), m, n,
          k);
}

}  // namespace mpigrad::cpu
