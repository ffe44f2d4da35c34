// Matrix products by cuBLASLt, which stores matrices by columns: a row-major C = op(A) op(B) in memory is, read by columns,
// C^T = op(B)^T op(A)^T. The operands therefore change places, and nothing is moved.

#include <algorithm>
#include <array>
#include <optional>

#include "framework/base/error.h"
#include "framework/cuda/check.h"
#include "framework/engine/op.h"
#include "ops/backends/cublas/cublas_matmul.h"
#include "ops/backends/cublas/vendor_cublas.h"
#include "ops/backends/cuda/convert.h"
#include "ops/backends/cuda/scratch.h"
#include "ops/gpu_settings.h"
#include "ops/kernel/plan_cache.h"

namespace mpigrad::cuda {
namespace {

std::string text_of(const MatmulProblem& p, DType type) {
  return fmt::format("{} [{}, {}, {}]{} x [{}, {}, {}]{}", name_of(type), p.batch, p.transpose_a ? p.k : p.m,
                     p.transpose_a ? p.m : p.k, p.transpose_a ? " transposed" : "", p.batch, p.transpose_b ? p.n : p.k,
                     p.transpose_b ? p.k : p.n, p.transpose_b ? " transposed" : "");
}

void check_cublas(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const auto op = detail::current_op();
  fail("[{}] cuBLASLt {}: {} failed: {} ({})", op.empty() ? "matmul" : op, cublas_lt().cublasLtGetVersion(), call,
       cublas_lt().cublasLtGetStatusString(status), cublas_lt().cublasLtGetStatusName(status));
}
#define MPIGRAD_CUBLAS(function, ...) check_cublas(cublas_lt().cublasLt##function(__VA_ARGS__), "cublasLt" #function)

cudaDataType_t native(DType type) {
  switch (type) {
    case DType::float32: return CUDA_R_32F;
    case DType::float64: return CUDA_R_64F;
    case DType::bfloat16: return CUDA_R_16BF;
    case DType::float16: return CUDA_R_16F;
    case DType::int64:
    case DType::int32:
    case DType::int16:
    case DType::uint8:
    case DType::boolean:
    case DType::uint16:
    case DType::complex64:
    case DType::complex128: break;
  }
  fail("[matmul] cuBLASLt multiplies floating-point numbers, not {}", name_of(type));
}

struct Operation {
  cublasLtMatmulDesc_t of{};
  Operation(cublasComputeType_t compute, cudaDataType_t scale) { MPIGRAD_CUBLAS(MatmulDescCreate, &of, compute, scale); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() { static_cast<void>(cublas_lt().cublasLtMatmulDescDestroy(of)); }
  template <class V>
  void set(cublasLtMatmulDescAttributes_t name, const V& value) {
    MPIGRAD_CUBLAS(MatmulDescSetAttribute, of, name, &value, sizeof value);
  }
};
struct Layout {
  cublasLtMatrixLayout_t of{};
  Layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t batch, std::int64_t stride) {
    MPIGRAD_CUBLAS(MatrixLayoutCreate, &of, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                   std::max<std::int64_t>(rows, 1));
    if (batch == 1) return;
    require(batch <= INT32_MAX, "[matmul] a batch of {} products is more than cuBLASLt takes", batch);
    const auto count = static_cast<std::int32_t>(batch);
    MPIGRAD_CUBLAS(MatrixLayoutSetAttribute, of, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    MPIGRAD_CUBLAS(MatrixLayoutSetAttribute, of, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { static_cast<void>(cublas_lt().cublasLtMatrixLayoutDestroy(of)); }
};
struct Preference {
  cublasLtMatmulPreference_t of{};
  Preference() { MPIGRAD_CUBLAS(MatmulPreferenceCreate, &of); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { static_cast<void>(cublas_lt().cublasLtMatmulPreferenceDestroy(of)); }
  template <class V>
  void set(cublasLtMatmulPreferenceAttributes_t name, const V& value) {
    MPIGRAD_CUBLAS(MatmulPreferenceSetAttribute, of, name, &value, sizeof value);
  }
};

struct Question {
  MatmulProblem problem;
  DType type = DType::float32;
  bool tf32 = false;
  std::int64_t workspace = 0;
  std::array<std::uint32_t, 4> alignments{};  // of a, b, c and the bias; 0 without a bias
  bool operator==(const Question&) const = default;
};
struct QuestionHash {
  std::size_t operator()(const Question& q) const {
    std::uint64_t h = 0x9e3779b97f4a7c15;
    const auto& p = q.problem;
    for (const std::int64_t k :
         {p.batch, p.m, p.n, p.k, p.stride_a, p.stride_b, q.workspace, std::int64_t{p.transpose_a} * 2 + p.transpose_b,
          static_cast<std::int64_t>(q.type) * 2 + q.tf32, std::int64_t{q.alignments[0]}, std::int64_t{q.alignments[1]},
          std::int64_t{q.alignments[2]}, std::int64_t{q.alignments[3]}})
      h = (h ^ static_cast<std::uint64_t>(k)) * 0xff51afd7ed558ccd, h ^= h >> 32;
    return static_cast<std::size_t>(h);
  }
};

// A product as passed to the library.
struct Product {
  Operation operation;
  Layout first, second, result;

  Product(const Question& q, const void* bias)
      : operation(compute(q), q.type == DType::float64 ? CUDA_R_64F : CUDA_R_32F), first(of_b(q.problem, native(q.type))),
        second(of_a(q.problem, native(q.type))),
        result(native(q.type), q.problem.n, q.problem.m, q.problem.batch, q.problem.m * q.problem.n) {
    const std::int32_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
    operation.set(CUBLASLT_MATMUL_DESC_TRANSA, q.problem.transpose_b ? transposed : plain);
    operation.set(CUBLASLT_MATMUL_DESC_TRANSB, q.problem.transpose_a ? transposed : plain);
    if (!bias) return;
    const std::uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

 private:
  static cublasComputeType_t compute(const Question& q) {
    if (q.type == DType::float64) return CUBLAS_COMPUTE_64F;
    return q.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  }
  static Layout of_a(const MatmulProblem& p, cudaDataType_t type) {
    return {type, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.batch, p.stride_a};
  }
  static Layout of_b(const MatmulProblem& p, cudaDataType_t type) {
    return {type, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.batch, p.stride_b};
  }
};

struct Choice {
  cublasLtMatmulAlgo_t algorithm{};
  std::int64_t workspace = 0;
  bool adds_bias = false;
};

struct CublasContext {
  explicit CublasContext(int index) : device(index) { MPIGRAD_CUBLAS(Create, &handle); }
  const int device;
  cublasLtHandle_t handle{};
  ops::PlanCache<Question, Choice, QuestionHash> choices;
};

std::optional<Choice> ask(CublasContext& here, const Question& q, const void* bias, cublasStatus_t& status) {
  const Product product(q, bias);
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(q.workspace));
  // Parts of a sum must not be rounded to 16 bits before they are added: the scheme INPLACE adds in the output's type.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                                   (is_half(q.type) ? 0U : static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_INPLACE));
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, q.alignments[1]);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, q.alignments[0]);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, q.alignments[2]);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, q.alignments[2]);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  status = cublas_lt().cublasLtMatmulAlgoGetHeuristic(here.handle, product.operation.of, product.first.of, product.second.of,
                                                      product.result.of, product.result.of, preference.of, 1, &found, &count);
  if (status == CUBLAS_STATUS_SUCCESS && count > 0) status = found.state;
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) return {};
  return Choice{found.algo, static_cast<std::int64_t>(found.workspaceSize), bias != nullptr};
}

std::uint32_t alignment_of(const void* pointer) {
  const auto bits = reinterpret_cast<std::uintptr_t>(pointer) | 256;
  return pointer ? static_cast<std::uint32_t>(bits & -bits) : 0;
}

}  // namespace

void matmul(DType type, const MatmulProblem& p, const void* a, const void* b, void* c, const Epilogue& e) {
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  bool adds_bias = false;
  if (p.k == 0) {
    zero(c, p.batch * p.m * p.n * size_of(type));
  } else {
    const auto stream = cuda::native(compute_stream());  // first, as it selects the thread's GPU
    auto& here = Leased<CublasContext>::of_this_thread();
    const auto settings = gpu_settings();
    const Question q{p,
                     type,
                     settings.tf32 && type == DType::float32,
                     workspace_limit(settings.workspace),
                     {alignment_of(a), alignment_of(b), alignment_of(c), alignment_of(e.bias)}};
    const auto choice = here.choices.find(q, [&]() -> Choice {
      auto status = CUBLAS_STATUS_SUCCESS;
      if (e.bias)
        if (const auto with_bias = ask(here, q, e.bias, status)) return *with_bias;
      if (const auto without = ask(here, q, nullptr, status)) return *without;
      fail("[matmul] cuBLASLt {} has no algorithm for {}: {}", cublas_lt().cublasLtGetVersion(), text_of(p, type),
           cublas_lt().cublasLtGetStatusString(status));
    });
    adds_bias = choice->adds_bias;
    const Product product(q, adds_bias ? e.bias : nullptr);
    const Scratch workspace(choice->workspace);
    // Scale factors have the type of the sums.
    const double one = 1, nothing = 0;
    const float one_single = 1, nothing_single = 0;
    const bool is_double = type == DType::float64;
    MPIGRAD_CUBLAS(Matmul, here.handle, product.operation.of, is_double ? static_cast<const void*>(&one) : &one_single, b,
                   product.first.of, a, product.second.of, is_double ? static_cast<const void*>(&nothing) : &nothing_single, c,
                   product.result.of, c, product.result.of, &choice->algorithm, workspace.data(),
                   static_cast<std::size_t>(choice->workspace), stream);
  }
  // The library does not guarantee that its ReLU keeps NaN, and it has no LeakyReLU.
  visit_any_floating(type, [&](auto none) {
    using T = decltype(none);
    auto* y = static_cast<T*>(c);
    bias_activation(p.batch * p.m, p.n, y, adds_bias ? nullptr : static_cast<const T*>(e.bias), e.fused, y, compute_stream());
  });
}

}  // namespace mpigrad::cuda
