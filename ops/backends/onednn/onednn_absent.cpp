// Without oneDNN: float uses the same kernels as double.

#include "ops/backends/blas/blas.h"
#include "ops/backends/implementation.h"
#include "ops/backends/winograd/winograd.h"
#include "ops/conv/conv_bfloat16.h"
#include "ops/conv/conv_gathered.h"
#include "ops/pool/pool_kernels.h"
#include "ops/pool/pool_separated.h"

namespace mpigrad::cpu {

bool onednn_present() { return false; }
std::string onednn_instruction_set() { return {}; }
std::string implementation_of(Pass pass, const ConvProblem& p) { return winograd::suits(pass, p) ? "winograd" : "gathered"; }
std::string native_implementation_of(Pass, const ConvProblem&) { return {}; }
std::string implementation_of(const PoolProblem&) { return "separated"; }

template <>
void conv_forward(const ConvProblem& p, const float* x, const float* w, float* y, const Epilogue& e) {
  if (winograd::suits(Pass::forward, p)) winograd::conv_forward(p, x, w, y, e);
  else gathered::conv_forward(p, x, w, y, e);
}

template <>
void conv_data(const ConvProblem& p, const float* gy, const float* w, float* gx, const Epilogue& e) {
  if (winograd::suits(Pass::data, p)) winograd::conv_data(p, gy, w, gx, e);
  else gathered::conv_data(p, gy, w, gx, e);
}

template <>
void conv_weight(const ConvProblem& p, const float* x, const float* gy, float* gw) {
  if (winograd::suits(Pass::weight, p)) winograd::conv_weight(p, x, gy, gw);
  else gathered::conv_weight(p, x, gy, gw);
}

#define MPIGRAD_MAKE(W)                                                                                  \
  template <>                                                                                            \
  bool native::conv_forward(const ConvProblem&, const BFloat16*, const W*, BFloat16*, const Epilogue&) { \
    return false;                                                                                        \
  }                                                                                                      \
  template <>                                                                                            \
  bool native::conv_data(const ConvProblem&, const BFloat16*, const W*, BFloat16*) {                     \
    return false;                                                                                        \
  }                                                                                                      \
  template <>                                                                                            \
  bool native::conv_weight(const ConvProblem&, const BFloat16*, const BFloat16*, W*) {                   \
    return false;                                                                                        \
  }
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(float)
#undef MPIGRAD_MAKE

template <>
void avg_pool_forward(const PoolProblem& p, const float* x, float* y) {
  separated::avg_pool_forward(p, x, y);
}

template <>
bool gemm_is_threaded<float>() {
  return false;
}

template <>
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
          const float* b, std::int64_t ldb, bool accumulate, float* c, std::int64_t ldc) {
  plain_gemm(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, accumulate, c, ldc);
}

}  // namespace mpigrad::cpu
