#pragma once
// A product described to the emulated cuBLASLt, with the checks of its description: the rules of cublasLt.h and of NVIDIA's
// documentation of cublasLtMatmul.

#include <cublasLt.h>

#include <cstdint>
#include <cstdio>
#include <limits>

#include "tests/emulation/vendor/numbers.h"
#include "tests/emulation/vendor/options.h"

namespace mpigrad::emulation::vendor {

struct Layout {
  cudaDataType type = CUDA_R_32F;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0, stride = 0;
  std::int32_t batch = 1;
  bool operator==(const Layout&) const = default;
};
struct Operation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST, transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C, D
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
              sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t) &&
              sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));

// An algorithm chosen by the heuristics, and the problem for which it was chosen.
struct Algorithm {
  static constexpr std::uint64_t mark = 0x6d70696772616421;
  std::uint64_t magic = mark, problem = 0, workspace = 0;
  std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  std::uint32_t alignments[5] = {};  // the last one is that of the bias
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

struct Refusal {
  cublasStatus_t status;
};
// cuBLASLt has no message for the last error, so the reason is printed.
inline void demand(bool condition, cublasStatus_t status, const char* why) {
  if (condition) return;
  if (status == CUBLAS_STATUS_INVALID_VALUE) std::fprintf(stderr, "[emulated cuBLASLt] %s\n", why);
  throw Refusal{status};
}
inline constexpr auto invalid = CUBLAS_STATUS_INVALID_VALUE;
inline constexpr auto unsupported = CUBLAS_STATUS_NOT_SUPPORTED;

template <class F>
cublasStatus_t guarded(F&& call) {
  try {
    call();
    return CUBLAS_STATUS_SUCCESS;
  } catch (const Refusal& refusal) {
    return refusal.status;
  }
}

inline Element element_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F: return Element::float32;
    case CUDA_R_64F: return Element::float64;
    case CUDA_R_16F: return Element::float16;
    case CUDA_R_16BF: return Element::bfloat16;
    default: throw Refusal{unsupported};
  }
}

struct Problem {
  Operation operation;
  Layout a, b, c, d;
  std::uint64_t rows() const { return d.rows; }
  std::uint64_t columns() const { return d.columns; }
  std::uint64_t depth() const { return operation.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }

  // A hash of all properties on which an algorithm depends.
  std::uint64_t hash() const {
    std::uint64_t h = 0x9e3779b97f4a7c15;
    const auto add = [&](std::uint64_t k) { h = (h ^ k) * 0xff51afd7ed558ccd, h ^= h >> 32; };
    for (const auto* l : {&a, &b, &c, &d})
      for (const std::uint64_t k :
           {std::uint64_t{static_cast<unsigned>(l->type)}, l->rows, l->columns, static_cast<std::uint64_t>(l->leading),
            static_cast<std::uint64_t>(l->stride), static_cast<std::uint64_t>(l->batch)})
        add(k);
    add(static_cast<std::uint64_t>(operation.compute)), add(static_cast<std::uint64_t>(operation.scale));
    add(static_cast<std::uint64_t>(operation.transpose_a * 2 + operation.transpose_b)), add(operation.epilogue);
    return h;
  }
};

inline void check_layout(const Layout& l) {
  demand(l.order == CUBLASLT_ORDER_COL, unsupported, "only matrices by columns are emulated");
  demand(l.rows > 0 && l.columns > 0 && l.batch > 0, invalid, "a matrix of nothing");
  demand(l.rows <= std::numeric_limits<std::int32_t>::max() && l.columns <= std::numeric_limits<std::int32_t>::max(), unsupported,
         "extents are 32-bit numbers");
  demand(l.leading >= static_cast<std::int64_t>(l.rows), invalid, "the leading dimension is less than the rows");
}

// The table of types in the documentation of cublasLtMatmul: compute type, scale type, matrices; and if epilogues are allowed.
inline void check_types(const Problem& p) {
  const auto type = p.d.type;
  const auto& o = p.operation;
  demand(p.a.type == type && p.b.type == type && p.c.type == type, unsupported, "matrices of several types are not emulated");
  bool known = false;
  switch (o.compute) {
    case CUBLAS_COMPUTE_32F:
      known = o.scale == CUDA_R_32F && (type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF);
      break;
    case CUBLAS_COMPUTE_32F_FAST_TF32: known = o.scale == CUDA_R_32F && type == CUDA_R_32F; break;
    case CUBLAS_COMPUTE_64F: known = o.scale == CUDA_R_64F && type == CUDA_R_64F; break;
    default: break;
  }
  demand(known, unsupported, "no such combination of types");
  demand(o.epilogue == CUBLASLT_EPILOGUE_DEFAULT || type != CUDA_R_64F, unsupported, "doubles have no epilogue");
}

inline void check(const Problem& p) {
  const auto& o = p.operation;
  for (const auto* l : {&p.a, &p.b, &p.c, &p.d}) check_layout(*l);
  const bool ta = o.transpose_a != CUBLAS_OP_N, tb = o.transpose_b != CUBLAS_OP_N;
  const auto m = ta ? p.a.columns : p.a.rows, k = ta ? p.a.rows : p.a.columns, n = tb ? p.b.rows : p.b.columns,
             also_k = tb ? p.b.columns : p.b.rows;
  demand(k == also_k, invalid, "the inner extents differ");
  demand(p.d.rows == m && p.d.columns == n && p.c.rows == m && p.c.columns == n, invalid, "the result has other extents");
  for (const auto* l : {&p.b, &p.c, &p.d}) demand(l->batch == p.a.batch, invalid, "batches differ");
  if (p.d.batch > 1)
    demand(p.d.stride >= p.d.leading * static_cast<std::int64_t>(n - 1) + static_cast<std::int64_t>(m), invalid,
           "results of a batch overlap");
  demand(o.pointer_mode == CUBLASLT_POINTER_MODE_HOST, unsupported, "scale factors on the host are emulated");
  demand(o.epilogue == CUBLASLT_EPILOGUE_DEFAULT || o.epilogue == CUBLASLT_EPILOGUE_BIAS, unsupported, "another epilogue");
  demand((o.epilogue == CUBLASLT_EPILOGUE_BIAS) == (o.bias != nullptr), invalid, "an epilogue and its pointer go together");
  check_types(p);
  const Options asked("MPIGRAD_EMULATED_CUBLASLT");
  demand(!asked.has("no-bias") || o.epilogue == CUBLASLT_EPILOGUE_DEFAULT, unsupported, "no epilogue, as asked");
  demand(!asked.has("no-algorithm"), unsupported, "no algorithm, as asked");
}

}  // namespace mpigrad::emulation::vendor
