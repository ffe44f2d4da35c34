#pragma once
// Matrix products of the libraries with 64-bit extents, with bias and activation.

#include <cstdint>
#include <string>
#include <string_view>

#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

// c[m, n] = op(a) op(b) (+ c if accumulate), row-major with leading dimensions lda, ldb, ldc; op(a) is [m, k], op(b) is [k, n].
// One thread when called from a parallel region. Double is OpenBLAS, float is oneDNN (twice as fast where this OpenBLAS has no
// AVX-512 kernels for the processor, and three times for a few rows).
template <class T>
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t lda,
          const T* b, std::int64_t ldb, bool accumulate, T* c, std::int64_t ldc);

// True if gemm uses several threads for one product when called outside a parallel region.
template <class T>
bool gemm_is_threaded();

// The kernels of OpenBLAS for a processor with these instructions, if those with the name `chosen` are for older ones; else
// empty. OpenBLAS 0.3.21 takes kernels of SSE3 for processors that are younger than itself, with a quarter of the speed.
constexpr std::string_view better_blas_kernels(std::string_view chosen, bool avx2, bool avx512) {
  if (chosen == "SkylakeX" || chosen == "Cooperlake" || chosen == "SapphireRapids") return {};
  if (avx512) return "SkylakeX";
  return !avx2 || chosen == "Haswell" || chosen == "Zen" || chosen == "Excavator" ? std::string_view() : "Haswell";
}
// Makes OpenBLAS use the kernels with this name from now on, as OPENBLAS_CORETYPE does; false if it cannot. No other thread may
// be in OpenBLAS.
bool use_blas_kernels(const std::string& name);
// Uses better_blas_kernels() for this processor, as the library does when it is loaded. Leaves the kernels as they are, with
// false, if OPENBLAS_CORETYPE is set, or if the process has threads besides this one and OpenBLAS's own: they may be in OpenBLAS.
bool choose_blas_kernels();

// Products of fewer multiplications are plain loops: the libraries need a microsecond before they compute.
inline constexpr std::int64_t tiny_product = 1 << 11;

// The same product as plain loops, for tiny ones and for builds without one of the libraries.
template <class T>
void plain_gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t lda,
                const T* b, std::int64_t ldb, bool accumulate, T* c, std::int64_t ldc);

// y <- activation(y + bias) over a block of rows of n channels, ld apart. `channel` is the first channel of the block.
template <class T>
void apply_epilogue(const Epilogue& e, std::int64_t rows, std::int64_t channel, std::int64_t n, T* y, std::int64_t ld);

// The same for all rows of y [rows, channels], with all threads.
template <class T>
void apply_epilogue_parallel(const Epilogue& e, std::int64_t rows, std::int64_t channels, T* y);

}  // namespace mpigrad::cpu
