// The emulated libraries of tests/emulation/vendor by themselves, without a runtime: on host memory, executed at once. They must
// compute the right results, and refuse calls that NVIDIA's libraries refuse or do not check.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "framework/base/error.h"
#include "ops/backends/cublas/vendor_cublas.h"
#include "ops/backends/cudnn/cudnn_plan.h"
#include "tests/ops/kernel_problems.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using cuda::Pass;

namespace {

const cuda::Search all_plans{.most = 20, .built = 20, .compiled = 20};

struct Option {
  const char* name;
  Option(const char* variable, const char* words) : name(variable) { setenv(name, words, 1); }
  ~Option() { unsetenv(name); }
};

// 256-byte aligned memory, filled with NaN.
template <class T>
struct Aligned {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<T, Free> memory;
  T* data;
  explicit Aligned(std::int64_t n) : Aligned(n, (static_cast<std::size_t>(n) * sizeof(T) / 256 + 1) * 256) {}
  explicit Aligned(const std::vector<double>& values) : Aligned(static_cast<std::int64_t>(values.size())) {
    for (std::size_t i = 0; i < values.size(); ++i) data[i] = T(static_cast<float>(values[i]));
    if constexpr (std::is_same_v<T, double>) std::copy(values.begin(), values.end(), data);
  }

 private:
  Aligned(std::int64_t, std::size_t bytes) : memory(static_cast<T*>(std::aligned_alloc(256, bytes))), data(memory.get()) {
    std::memset(static_cast<void*>(data), 0xFF, bytes);
  }
};

cudnnHandle_t handle() {
  static cudnnHandle_t one = [] {
    cudnnHandle_t made{};
    REQUIRE(cuda::cudnn().cudnnCreate(&made) == CUDNN_STATUS_SUCCESS);
    return made;
  }();
  return one;
}

double error_of(const auto* got, const std::vector<double>& wanted) {
  double worst = 0, largest = 1e-30;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - wanted[i]);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return worst / largest;
}

// Runs all plans for the problem on tensors in their own layout and checks their errors; returns the number of plans.
template <class T>
int check_plans(const ConvProblem& p, DType type, bool tf32, double tolerance, bool epilogue) {
  INFO(std::string(name_of(type)), tf32 ? " TF32 " : " ", text(p));
  const auto size = sizes(p);
  const auto round = [](std::vector<double> v) {
    for (auto& x : v) x = std::is_same_v<T, double> ? x : static_cast<double>(static_cast<float>(T(static_cast<float>(x))));
    return v;
  };
  const auto x = round(random_values<double>(size.x)), w = round(random_values<double>(size.w)),
             g = round(random_values<double>(size.y)), bias = round(random_values<double>(p.out_channels));
  int plans = 0;
  for (const auto pass : {Pass::forward, Pass::data, Pass::weight})
    for (auto form : cuda::forms_of(p, pass, type, tf32)) {
      if (form.moves_image || form.moves_weights || form.moves_outputs) continue;
      std::vector<double> wanted(static_cast<std::size_t>(pass == Pass::forward ? size.y : pass == Pass::data ? size.x : size.w));
      if (pass == Pass::forward) {
        form.call.bias = epilogue, form.call.fused = {epilogue ? 0.25 : 1};
        const Epilogue e{.bias = epilogue ? bias.data() : nullptr, .fused = form.call.fused};
        reference::conv_forward(p, x.data(), w.data(), wanted.data(), e);
      } else if (pass == Pass::data) {
        reference::conv_data(p, g.data(), w.data(), wanted.data());
      } else {
        reference::conv_weight(p, x.data(), g.data(), wanted.data());
      }
      std::string why;
      for (const auto& plan : cuda::plans_of(form.call, {.handle = handle()}, all_plans, why)) {
        Aligned<T> image(x), weights(w), outputs(g), b(bias);
        const Aligned<std::byte> workspace(plan.workspace);
        T* const result = pass == Pass::forward ? outputs.data : pass == Pass::data ? image.data : weights.data;
        std::memset(static_cast<void*>(result), 0xFF, wanted.size() * sizeof(T));
        cuda::execute(handle(), plan, {image.data, weights.data, outputs.data, b.data}, workspace.data);
        INFO(cuda::to_string(form.call), " engine ", plan.engine);
        CHECK(error_of(result, wanted) < tolerance);
        ++plans;
      }
    }
  return plans;
}

template <class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

// Calls functions by name, which loads the libraries into this program.
TEST_CASE("emulated libraries: those that are loaded") {
  CHECK(cudnnGetVersion() == cuda::cudnn().cudnnGetVersion());
  CHECK(reinterpret_cast<void*>(&cudnnGetVersion) == reinterpret_cast<void*>(cuda::cudnn().cudnnGetVersion));
  CHECK(reinterpret_cast<void*>(&cublasLtGetVersion) == reinterpret_cast<void*>(cuda::cublas_lt().cublasLtGetVersion));
}

TEST_CASE("emulated cuDNN: all plans of random problems give what the plain kernels give") {
  int plans = 0;
  for (int i = 0; i < 60; ++i) {
    const auto p = random_conv();
    plans += check_plans<double>(p, DType::float64, false, 1e-13, i % 2 == 0);
    plans += check_plans<float>(p, DType::float32, false, 1e-5, i % 2 == 0);
    plans += check_plans<float>(p, DType::float32, true, 2e-3, i % 2 == 0);
    plans += check_plans<BFloat16>(p, DType::bfloat16, false, 1e-2, i % 2 == 0);
    plans += check_plans<Float16>(p, DType::float16, false, 2e-3, i % 2 == 0);
  }
  CHECK(plans > 300);
}

TEST_CASE("emulated cuDNN: engines fail and refuse as asked") {
  const ConvProblem p{.batch = 1,
                      .in = {4, 5, 6},
                      .out = {4, 5, 6},
                      .kernel = {3, 3, 3},
                      .pad_low = {1, 1, 1},
                      .in_channels = 4,
                      .out_channels = 8};
  const auto numbers = [&](DType type, std::string* text = nullptr) {
    std::string why;
    std::vector<std::int64_t> result;
    for (const auto& plan : cuda::plans_of(cuda::form_of(p, Pass::forward, type).call, {.handle = handle()}, all_plans, why))
      result.push_back(plan.engine);
    if (text) *text = why;
    return result;
  };
  using Numbers = std::vector<std::int64_t>;
  CHECK(numbers(DType::float32) == Numbers{3, 0});
  CHECK(numbers(DType::bfloat16) == Numbers{41, 50, 3, 0});  // engines with tensor cores come first
  {
    const Option option("MPIGRAD_EMULATED_CUDNN", "fail-50,fail-3");
    CHECK(numbers(DType::bfloat16) == Numbers{41, 0});
  }
  {
    const Option option("MPIGRAD_EMULATED_CUDNN", "no-heuristics");
    CHECK(numbers(DType::bfloat16) == Numbers{0});
  }
  {
    const Option option("MPIGRAD_EMULATED_CUDNN", "large-workspace");
    CHECK(numbers(DType::bfloat16) == Numbers{0, 41, 50, 3});
  }
  {
    const Option option("MPIGRAD_EMULATED_CUDNN", "no-channels-last");
    std::string why;
    CHECK(numbers(DType::bfloat16, &why).empty());
    CHECK(why.find("channels last is not supported") != std::string::npos);
  }
}

TEST_CASE("emulated cuDNN: plans are looked for as asked") {
  const ConvProblem p{.batch = 1,
                      .in = {4, 5, 6},
                      .out = {4, 5, 6},
                      .kernel = {3, 3, 3},
                      .pad_low = {1, 1, 1},
                      .in_channels = 8,
                      .out_channels = 8};
  const auto engines = [&](const cuda::Search& search, double slope = 1) {
    auto call = cuda::form_of(p, Pass::forward, DType::bfloat16).call;
    call.bias = slope != 1, call.fused = {slope};
    std::string why;
    std::vector<std::int64_t> result;
    for (const auto& plan : cuda::plans_of(call, {.handle = handle()}, search, why)) result.push_back(plan.engine);
    return result;
  };
  using Numbers = std::vector<std::int64_t>;
  // Tensor cores before the order of the heuristics.
  CHECK(engines({}) == Numbers{41});
  CHECK(engines({.built = 1}) == Numbers{50});
  CHECK(engines({.most = 2}) == Numbers{41, 50});
  CHECK(engines({.engine = 0}) == Numbers{0});
  CHECK(engines({.place = 3}) == Numbers{3});
  CHECK(engines({.engine = 0, .place = 3}).empty());
  // A slope needs a kernel that is compiled first.
  CHECK(engines({.most = 20}, 0.25).empty());
  CHECK(engines({.most = 20, .compiled = 1}, 0.25) == Numbers{100});
  CHECK(engines({.most = 20}, 0) == Numbers{41, 50, 3, 0});
  // Small workspaces before speed.
  CHECK(engines({.workspace = 500}) == Numbers{3});
}

TEST_CASE("emulated cuDNN: what it is not told, or told wrongly, it refuses") {
  using cuda::Descriptor;
  const auto tensor = [](std::vector<std::int64_t> dimensions, std::vector<std::int64_t> strides, std::int64_t alignment = 16) {
    Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const auto type = CUDNN_DATA_FLOAT;
    const std::int64_t id = 1;
    t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dimensions).set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {&id, 1}).set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {&alignment, 1});
    return t.try_finalize();
  };
  CHECK(tensor({2, 3, 4, 5}, {60, 20, 5, 1}) == CUDNN_STATUS_SUCCESS);
  CHECK(tensor({2, 3, 4, 5}, {60, 1, 15, 3}) == CUDNN_STATUS_SUCCESS);
  CHECK(tensor({2, 3, 4, 5}, {60, 1, 15}) != CUDNN_STATUS_SUCCESS);
  CHECK(tensor({2, 3, 4, 5}, {60, 1, 15, 2}) != CUDNN_STATUS_SUCCESS);  // elements overlap
  CHECK(tensor({2, 0, 4, 5}, {60, 20, 5, 1}) != CUDNN_STATUS_SUCCESS);
  CHECK(tensor({2, 3, 4, 5}, {60, 20, 5, 1}, 2) != CUDNN_STATUS_SUCCESS);
  CHECK(error_text([] { Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR).finalize(); }).find("attribute 901 is not set") !=
        std::string::npos);
  Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const double number = 1;
  CHECK_THROWS_AS(t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_DOUBLE, 1, &number), Error);
  CHECK_THROWS_AS(t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, &number), Error);
  CHECK_THROWS_AS(t.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &number), Error);
  Descriptor op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  CHECK_THROWS_AS(op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, t), Error);  // not final

  // Plans: wrong alignment, no workspace, a result that overlaps an operand.
  cuda::ConvCall call{.batch = 1, .in_channels = 4, .out_channels = 4, .in = {2, 2, 2}, .out = {2, 2, 2}};
  std::string why;
  const auto plans = cuda::plans_of(call, {.handle = handle()}, {}, why);
  REQUIRE(plans.size() == 1);
  CHECK(plans[0].workspace > 0);
  Aligned<float> x(64), w(64), y(64);
  Aligned<std::byte> workspace(plans[0].workspace);
  const auto run = [&](void* image, void* outputs, void* room) {
    return error_text([&] { cuda::execute(handle(), plans[0], {image, w.data, outputs, nullptr}, room); });
  };
  CHECK(run(x.data, y.data, workspace.data) == "no error");
  CHECK(run(x.data + 1, y.data, workspace.data).find("not aligned") != std::string::npos);
  CHECK(run(x.data, y.data, nullptr).find("needs a workspace") != std::string::npos);
  CHECK(run(x.data, x.data + 4, workspace.data).find("overlaps") != std::string::npos);
  CHECK(run(x.data, nullptr, workspace.data).find("null") != std::string::npos);
}

namespace {

// D = A B for column-major matrices, D [m, n], called as the library does.
struct Product {
  cublasLtHandle_t handle{};
  cublasLtMatmulDesc_t operation{};
  cublasLtMatrixLayout_t a{}, b{}, d{};
  cublasLtMatmulPreference_t preference{};
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  Product(cublasComputeType_t compute, cudaDataType scale, cudaDataType type, std::uint64_t m, std::uint64_t n, std::uint64_t k) {
    const auto& lt = cuda::cublas_lt();
    lt.cublasLtCreate(&handle);
    lt.cublasLtMatmulDescCreate(&operation, compute, scale);
    lt.cublasLtMatrixLayoutCreate(&a, type, m, k, static_cast<std::int64_t>(m));
    lt.cublasLtMatrixLayoutCreate(&b, type, k, n, static_cast<std::int64_t>(k));
    lt.cublasLtMatrixLayoutCreate(&d, type, m, n, static_cast<std::int64_t>(m));
    lt.cublasLtMatmulPreferenceCreate(&preference);
  }
  cublasStatus_t ask() {
    return cuda::cublas_lt().cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, d, d, preference, 1, &found, &count);
  }
  cublasStatus_t run(const void* x, const void* y, void* z, void* workspace = nullptr, std::size_t size = 0) {
    const float one = 1, nothing = 0;
    const double one_double = 1, nothing_double = 0;
    const bool is_double = found.algo.data[0] != 0 && scale_is_double;
    return cuda::cublas_lt().cublasLtMatmul(handle, operation, is_double ? static_cast<const void*>(&one_double) : &one, x, a, y,
                                            b, is_double ? static_cast<const void*>(&nothing_double) : &nothing, z, d, z, d,
                                            &found.algo, workspace, size, nullptr);
  }
  bool scale_is_double = false;
};

}  // namespace

TEST_CASE("emulated cuBLASLt: products, and the table of types") {
  Product p(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 2, 3, 2);
  REQUIRE(p.ask() == CUBLAS_STATUS_SUCCESS);
  Aligned<float> a(std::vector<double>{1, 2, 3, 4}), b(std::vector<double>{5, 6, 7, 8, 9, 10}), d(6);
  CHECK(p.run(a.data, b.data, d.data) == CUBLAS_STATUS_SUCCESS);
  CHECK(std::vector<float>(d.data, d.data + 6) == std::vector<float>{23, 34, 31, 46, 39, 58});
  CHECK(p.run(a.data + 1, b.data, d.data) == CUBLAS_STATUS_INVALID_VALUE);  // alignment is 256 bytes by default
  CHECK(p.run(a.data, b.data, b.data) == CUBLAS_STATUS_INVALID_VALUE);

  Product other(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 3, 2, 2);
  REQUIRE(other.ask() == CUBLAS_STATUS_SUCCESS);
  other.found = p.found;
  CHECK(other.run(b.data, a.data, d.data) == CUBLAS_STATUS_INVALID_VALUE);

  const auto status = [](cublasComputeType_t compute, cudaDataType scale, cudaDataType type) {
    return Product(compute, scale, type, 2, 3, 2).ask();
  };
  CHECK(status(CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  CHECK(status(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF) == CUBLAS_STATUS_SUCCESS);
  CHECK(status(CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F) == CUBLAS_STATUS_SUCCESS);
  CHECK(status(CUBLAS_COMPUTE_32F, CUDA_R_64F, CUDA_R_64F) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(status(CUBLAS_COMPUTE_64F, CUDA_R_32F, CUDA_R_64F) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(status(CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_16F) == CUBLAS_STATUS_NOT_SUPPORTED);

  // Each attribute has one size; inner extents must agree.
  const std::int64_t wide = CUBLAS_OP_T;
  const auto& lt = cuda::cublas_lt();
  CHECK(lt.cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof wide) ==
        CUBLAS_STATUS_INVALID_VALUE);
  p.b = other.b, p.d = other.d;
  CHECK(p.ask() == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("emulated cuBLASLt: 16-bit sums in place are rounded term by term") {
  const std::int64_t k = 400;
  Aligned<BFloat16> a(std::vector<double>(400, 1)), b(std::vector<double>(400, 1)), d(1);
  const auto sum = [&](std::uint32_t reductions) {
    Product p(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, 1, 1, static_cast<std::uint64_t>(k));
    cuda::cublas_lt().cublasLtMatmulPreferenceSetAttribute(p.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                           sizeof reductions);
    REQUIRE(p.ask() == CUBLAS_STATUS_SUCCESS);
    CHECK(p.run(a.data, b.data, d.data) == CUBLAS_STATUS_SUCCESS);
    return static_cast<float>(d.data[0]);
  };
  CHECK(sum(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 400);
  CHECK(sum(CUBLASLT_REDUCTION_SCHEME_INPLACE) == 256);
}
