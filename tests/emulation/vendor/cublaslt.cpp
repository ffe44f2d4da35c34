// The functions of libcublasLt that the library uses (ops/backends/cublas/vendor_cublas.h), on host memory: products of
// column-major matrices, with a bias. Accepts only what cublasLt.h and NVIDIA's documentation of cublasLtMatmul allow.
// MPIGRAD_EMULATED_CUBLASLT (options.h): no-bias refuses the epilogue, no-algorithm proposes no algorithm.

#include <cublasLt.h>

#include <cstring>

#include "tests/emulation/vendor/cublaslt_problem.h"
#include "tests/emulation/vendor/stream.h"

namespace mpigrad::emulation::vendor {
namespace {

template <class T, class Opaque>
T& own(Opaque* descriptor) {
  demand(descriptor != nullptr, invalid, "a descriptor is null");
  return *reinterpret_cast<T*>(descriptor);
}
template <class T, class Opaque>
void make(Opaque** descriptor, const T& value) {
  demand(descriptor != nullptr, invalid, "no place for a descriptor");
  *descriptor = reinterpret_cast<Opaque*>(new T(value));
}
// The size of the attribute must match exactly.
template <class T>
T value_of(const void* data, std::size_t bytes) {
  demand(data != nullptr, invalid, "an attribute without a value");
  demand(bytes == sizeof(T), invalid, "an attribute of another size");
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

// The largest power of two that divides the address, at most 256.
std::uint32_t alignment_of(const void* pointer) {
  const auto bits = reinterpret_cast<std::uintptr_t>(pointer) | 256;
  return static_cast<std::uint32_t>(bits & -bits);
}

template <class T>
void multiply(const Problem& p, const Algorithm& algorithm, T alpha, const void* a, const void* b, T beta, const void* c,
              void* d) {
  const auto& o = p.operation;
  const auto type = element_of(p.d.type);
  const bool ta = o.transpose_a != CUBLAS_OP_N, tb = o.transpose_b != CUBLAS_OP_N;
  const auto rounds = o.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const auto factor = [&](const Layout& l, const void* memory, std::int64_t batch, std::int64_t row, std::int64_t column) {
    const double x = load(type, memory, batch * l.stride + column * l.leading + row);
    return rounds ? static_cast<T>(tf32(static_cast<float>(x))) : static_cast<T>(x);
  };
  const auto m = static_cast<std::int64_t>(p.rows()), n = static_cast<std::int64_t>(p.columns()),
             k = static_cast<std::int64_t>(p.depth());
  for (std::int64_t batch = 0; batch < p.d.batch; ++batch)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i < m; ++i) {
        T sum = 0;
        for (std::int64_t t = 0; t < k; ++t) {
          sum += factor(p.a, a, batch, ta ? t : i, ta ? i : t) * factor(p.b, b, batch, tb ? j : t, tb ? t : j);
          // One part per term, each added to the result in its own type.
          if (algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE) sum = rounded(type, sum);
        }
        sum *= alpha;
        if (beta != 0) sum += beta * static_cast<T>(load(type, c, batch * p.c.stride + j * p.c.leading + i));
        if (o.bias) sum += static_cast<T>(load(type, o.bias, i));
        store(type, d, batch * p.d.stride + j * p.d.leading + i, sum);
      }
}

// Bytes from the first element to the end of the last.
std::int64_t bytes_of(const Layout& l) {
  const auto elements =
      (l.batch - 1) * l.stride + (static_cast<std::int64_t>(l.columns) - 1) * l.leading + static_cast<std::int64_t>(l.rows);
  return elements * static_cast<std::int64_t>(size_of(element_of(l.type)));
}
bool overlap(const void* x, std::int64_t size_x, const void* y, std::int64_t size_y) {
  const auto *a = static_cast<const std::byte*>(x), *b = static_cast<const std::byte*>(y);
  return a < b + size_y && b < a + size_x;
}

void set(Operation& o, cublasLtMatmulDescAttributes_t name, const void* data, std::size_t bytes) {
  const auto transpose = [&] {
    const auto value = value_of<std::int32_t>(data, bytes);
    demand(value == CUBLAS_OP_N || value == CUBLAS_OP_T, invalid, "real matrices are transposed or not");
    return value;
  };
  switch (name) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: o.pointer_mode = value_of<std::int32_t>(data, bytes); return;
    case CUBLASLT_MATMUL_DESC_TRANSA: o.transpose_a = transpose(); return;
    case CUBLASLT_MATMUL_DESC_TRANSB: o.transpose_b = transpose(); return;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: o.epilogue = value_of<std::uint32_t>(data, bytes); return;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: o.bias = value_of<const void*>(data, bytes); return;
    default: demand(false, invalid, "an attribute of products that is not emulated");
  }
}
void set(Layout& l, cublasLtMatrixLayoutAttribute_t name, const void* data, std::size_t bytes) {
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER: l.order = value_of<std::int32_t>(data, bytes); return;
    case CUBLASLT_MATRIX_LAYOUT_LD: l.leading = value_of<std::int64_t>(data, bytes); return;
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: l.batch = value_of<std::int32_t>(data, bytes); return;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: l.stride = value_of<std::int64_t>(data, bytes); return;
    default: demand(false, invalid, "an attribute of layouts that is not emulated");
  }
}
void set(Preference& p, cublasLtMatmulPreferenceAttributes_t name, const void* data, std::size_t bytes) {
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: p.workspace = value_of<std::uint64_t>(data, bytes); return;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      p.reductions = value_of<std::uint32_t>(data, bytes);
      demand(p.reductions <= CUBLASLT_REDUCTION_SCHEME_MASK, invalid, "no such reduction schemes");
      return;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
      const auto value = value_of<std::uint32_t>(data, bytes);
      demand(value > 0 && (value & (value - 1)) == 0, invalid, "an alignment is a power of two");
      p.alignments[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = value;
      return;
    }
    default: demand(false, invalid, "an attribute of preferences that is not emulated");
  }
}

}  // namespace
}  // namespace mpigrad::emulation::vendor

using namespace mpigrad::emulation::vendor;

struct cublasLtContext {
  std::uint64_t magic = 0x6c7468616e646c65;
};

extern "C" {

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_...";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
    default: return "another failure";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return guarded([&] {
    demand(handle != nullptr, invalid, "no place for a handle");
    *handle = new cublasLtContext;
  });
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
  return guarded([&] { make(made, Operation{.compute = compute, .scale = scale}); });
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  return guarded([&] { delete &own<Operation>(descriptor); });
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t name,
                                              const void* data, size_t bytes) {
  return guarded([&] { set(own<Operation>(descriptor), name, data, bytes); });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t leading) {
  return guarded([&] { make(made, Layout{.type = type, .rows = rows, .columns = columns, .leading = leading}); });
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t descriptor) {
  return guarded([&] { delete &own<Layout>(descriptor); });
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t descriptor, cublasLtMatrixLayoutAttribute_t name,
                                                const void* data, size_t bytes) {
  return guarded([&] { set(own<Layout>(descriptor), name, data, bytes); });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return guarded([&] { make(made, Preference{}); });
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t descriptor) {
  return guarded([&] { delete &own<Preference>(descriptor); });
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t descriptor,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* data, size_t bytes) {
  return guarded([&] { set(own<Preference>(descriptor), name, data, bytes); });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  return guarded([&] {
    demand(handle && handle->magic == cublasLtContext{}.magic, CUBLAS_STATUS_NOT_INITIALIZED, "no handle");
    demand(requested > 0 && results && count, invalid, "no place for results");
    *count = 0;
    const Problem p{own<Operation>(operation), own<Layout>(a), own<Layout>(b), own<Layout>(c), own<Layout>(d)};
    check(p);
    const auto& wanted = own<Preference>(preference);
    Algorithm algorithm;
    algorithm.problem = p.hash();
    // Chooses the allowed scheme with the most roundings; partial sums need memory.
    if ((wanted.reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0) algorithm.reduction = CUBLASLT_REDUCTION_SCHEME_INPLACE;
    else if ((wanted.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0 && wanted.workspace >= 4096)
      algorithm.reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (algorithm.reduction != CUBLASLT_REDUCTION_SCHEME_NONE && wanted.workspace >= 1000) algorithm.workspace = 1000;
    for (int i = 0; i < 4; ++i) algorithm.alignments[i] = wanted.alignments[i];
    algorithm.alignments[4] = p.operation.bias ? alignment_of(p.operation.bias) : 1;
    results[0] = {};
    std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
    results[0].workspaceSize = algorithm.workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *count = 1;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t size, cudaStream_t stream) {
  return guarded([&] {
    demand(handle && handle->magic == cublasLtContext{}.magic, CUBLAS_STATUS_NOT_INITIALIZED, "no handle");
    const Problem p{own<Operation>(operation), own<Layout>(a_layout), own<Layout>(b_layout), own<Layout>(c_layout),
                    own<Layout>(d_layout)};
    check(p);
    demand(algo != nullptr, invalid, "the emulation has no algorithm of its own choice");
    Algorithm algorithm;
    std::memcpy(static_cast<void*>(&algorithm), algo, sizeof algorithm);
    demand(algorithm.magic == Algorithm::mark && algorithm.problem == p.hash(), invalid, "the algorithm is for another problem");
    demand(size >= algorithm.workspace && (algorithm.workspace == 0 || workspace), invalid, "the workspace is too small");
    demand(size == 0 || alignment_of(workspace) == 256, invalid, "the workspace is not aligned to 256 bytes");
    const void* const pointers[] = {a, b, c, d, p.operation.bias};
    const std::int64_t sizes[] = {bytes_of(p.a), bytes_of(p.b), bytes_of(p.c), bytes_of(p.d),
                                  static_cast<std::int64_t>(p.rows() * size_of(element_of(p.d.type)))};
    for (int i = 0; i < 5; ++i) {
      if (i == 4 && !pointers[i]) continue;
      demand(pointers[i] != nullptr, invalid, "a matrix is null");
      demand(alignment_of(pointers[i]) >= algorithm.alignments[i], invalid, "a matrix is not aligned as heuristics were told");
      demand(unreachable(pointers[i], sizes[i]).empty(), invalid, "a matrix is not where the GPU can reach all of it");
    }
    for (int i : {0, 1, 4})
      demand(!pointers[i] || !overlap(d, sizes[3], pointers[i], sizes[i]), invalid, "the result overlaps an operand");
    demand(c == d || !overlap(d, sizes[3], c, sizes[2]), invalid, "C overlaps D without being it");
    demand(c != d || p.c == p.d, invalid, "C is D with another layout");
    demand(unreachable(workspace, static_cast<std::int64_t>(size)).empty(), invalid, "the workspace is out of reach");
    demand(alpha && beta, invalid, "no scale factors");
    const auto scale = [&](const void* factor) {
      return p.operation.scale == CUDA_R_64F ? *static_cast<const double*>(factor)
                                             : static_cast<double>(*static_cast<const float*>(factor));
    };
    enqueue(stream, [=, first = scale(alpha), second = scale(beta)] {
      if (size > 0) std::memset(workspace, 0xA5, size);
      if (p.operation.scale == CUDA_R_64F) multiply<double>(p, algorithm, first, a, b, second, c, d);
      else multiply<float>(p, algorithm, static_cast<float>(first), a, b, static_cast<float>(second), c, d);
    });
  });
}

}  // extern "C"
