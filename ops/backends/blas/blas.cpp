// Matrix products of double by OpenBLAS.

#if defined(__clang__)  // the header declares C99 complex types
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc99-extensions"
#endif
#include <cblas.h>
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <system_error>

#include "framework/base/error.h"
#include "ops/backends/blas/blas.h"
#include "ops/backends/implementation.h"

// Of builds with kernels for several processors; not in the header.
extern "C" {
__attribute__((weak)) void gotoblas_dynamic_init();
__attribute__((weak)) void gotoblas_dynamic_quit();
__attribute__((weak)) int blas_thread_shutdown_();
}

namespace mpigrad::cpu {

namespace {

blasint checked(std::int64_t extent) {
  require(extent <= std::numeric_limits<blasint>::max(), "[matmul] BLAS takes extents below 2^31: {}", extent);
  return static_cast<blasint>(extent);
}

CBLAS_TRANSPOSE op(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

}  // namespace

std::string blas_kernels() { return openblas_get_corename(); }

bool use_blas_kernels(const std::string& name) {
  if (!gotoblas_dynamic_init || !gotoblas_dynamic_quit || !blas_thread_shutdown_) return false;
  constexpr auto environment = "OPENBLAS_CORETYPE";
  const char* const set = std::getenv(environment);
  const std::string before = set ? set : "";
  blas_thread_shutdown_();  // threads of its own read the table of kernels; a later call makes new threads
  setenv(environment, name.c_str(), 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  if (set) setenv(environment, before.c_str(), 1);
  else unsetenv(environment);
  return blas_kernels() == name;
}

namespace {

#if defined(__x86_64__)
// The number of threads of this process, 0 if the system does not say.
int threads_of_process() {
  std::error_code error;
  std::filesystem::directory_iterator threads("/proc/self/task", error);
  return error ? 0 : static_cast<int>(std::distance(threads, {}));
}
#endif

// OpenBLAS chooses by the processor's model when it is loaded; here the instructions choose.
[[maybe_unused]] const bool chosen = choose_blas_kernels();

}  // namespace

bool choose_blas_kernels() {
#if defined(__x86_64__)
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr || threads_of_process() > openblas_get_num_threads()) return false;
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  const auto better = better_blas_kernels(openblas_get_corename(), avx2, avx512);
  return !better.empty() && use_blas_kernels(std::string(better));
#else
  return false;
#endif
}

template <>
bool gemm_is_threaded<double>() {
  return false;
}

template <>
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t lda,
          const double* b, std::int64_t ldb, bool accumulate, double* c, std::int64_t ldc) {
  // OpenMP's threads call OpenBLAS, whose own pool would compete with them.
  [[maybe_unused]] static const bool once = (openblas_set_num_threads(1), true);
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate)
      for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, 0.0);
    return;
  }
  if (m * n * k < tiny_product) return plain_gemm(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, accumulate, c, ldc);
  const double beta = accumulate ? 1.0 : 0.0;
  if (m == 1)  // c = op(b)^T a
    cblas_dgemv(CblasRowMajor, op(!transpose_b), checked(transpose_b ? n : k), checked(transpose_b ? k : n), 1.0, b, checked(ldb),
                a, checked(transpose_a ? lda : 1), beta, c, 1);
  else if (n == 1)  // c = op(a) b
    cblas_dgemv(CblasRowMajor, op(transpose_a), checked(transpose_a ? k : m), checked(transpose_a ? m : k), 1.0, a, checked(lda),
                b, checked(transpose_b ? 1 : ldb), beta, c, checked(ldc));
  else
    cblas_dgemm(CblasRowMajor, op(transpose_a), op(transpose_b), checked(m), checked(n), checked(k), 1.0, a, checked(lda), b,
                checked(ldb), beta, c, checked(ldc));
}

}  // namespace mpigrad::cpu
