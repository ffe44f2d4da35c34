// Operation graphs and engines of cuDNN on a machine without a GPU: cuDNN 9.8 and newer can plan for a described GPU.

#include <doctest/doctest.h>

#include "framework/base/error.h"
#include "ops/backends/cudnn/cudnn_plan.h"
#include "tests/ops/conv/described_gpu.h"
#include "tests/ops/kernel_problems.h"
#include "tests/ops/plain_comparison.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using cuda::Pass;

namespace {

// Null if this cuDNN cannot plan without a GPU; then the case is skipped.
std::unique_ptr<cuda::Descriptor> described_gpu(bool hopper, const char* name) {
  try {
    return testing::described_gpu(hopper);
  } catch (const Error& error) {
    skip_test(name, error.what());
    return nullptr;
  }
}

// The first form that has a plan; the forms are tried in the same order as on a GPU.
std::vector<cuda::CudnnPlan> plan_for(const ConvProblem& p, Pass pass, DType type, bool tf32, const cuda::Target& target,
                                      cuda::ConvForm& taken, std::string& why) {
  for (const auto& form : cuda::forms_of(p, pass, type, tf32)) {
    auto plans = cuda::plans_of(form.call, target, {}, why);
    if (plans.empty()) continue;
    taken = form;
    return plans;
  }
  return {};
}

}  // namespace

TEST_CASE("cuDNN plans: every layer of CosmoFlow, in every type, on the tensors as they lie") {
  for (const bool hopper : {false, true}) {
    const auto device = described_gpu(hopper, "cuDNN plans of CosmoFlow");
    if (!device) return;
    const std::int64_t channels[] = {4, 16, 32, 64, 128, 256};
    for (const auto type : {DType::float32, DType::bfloat16, DType::float16, DType::float64})
      for (const bool tf32 : {false, true}) {
        if (tf32 && type != DType::float32) continue;
        for (std::size_t i = 0; i < 5; ++i) {
          auto p = layer(std::int64_t{64} >> i, i == 3 ? 2 : 1, channels[i], channels[i + 1], 2);
          for (const bool slab : {false, true}) {  // a slab of a split in depth, together with its halo
            if (slab) p.out[0] /= 2, p.in[0] = (p.out[0] - 1) * p.stride[0] + 3, p.pad_low[0] = 0;
            for (const auto pass : {Pass::forward, Pass::data, Pass::weight}) {
              cuda::ConvForm form;
              std::string why;
              const auto plans = plan_for(p, pass, type, tf32, {.device = device.get()}, form, why);
              INFO(cuda::name_of(pass), " ", std::string(name_of(type)), " ", text(p), ": ", why);
              REQUIRE(plans.size() == 1);
              CHECK_FALSE((form.moves_image || form.moves_weights || form.moves_outputs));
              CHECK(cuda::precise_enough(form.call, plans[0].notes));
            }
          }
        }
      }
  }
}

TEST_CASE("cuDNN plans: random problems of every kind") {
  const auto device = described_gpu(true, "cuDNN plans of random problems");
  if (!device) return;
  int treated = 0;
  for (int i = 0; i < 60; ++i) {
    const auto p = random_conv();
    const DType types[] = {DType::float32, DType::bfloat16, DType::float16, DType::float64};
    const auto type = types[i % 4];
    for (const auto pass : {Pass::forward, Pass::data, Pass::weight}) {
      cuda::ConvForm form;
      std::string why;
      const auto plans = plan_for(p, pass, type, i % 8 == 0, {.device = device.get()}, form, why);
      INFO(cuda::name_of(pass), " ", std::string(name_of(type)), " ", text(p), ": ", why);
      CHECK(plans.size() == 1);
      treated += form.moves_image;
    }
  }
  CHECK(treated > 5);
}

TEST_CASE("cuDNN plans: bias and ReLU in the same graph, and a fallback where the activation is not offered") {
  const auto device = described_gpu(true, "cuDNN plans with bias");
  if (!device) return;
  const auto p = layer(32, 1, 16, 32);
  std::string why;
  for (const auto type : {DType::float32, DType::bfloat16, DType::float64}) {
    auto call = cuda::form_of(p, Pass::forward, type).call;
    call.bias = true;
    INFO(std::string(name_of(type)), " ", why);
    const auto plans = cuda::plans_of(call, {.device = device.get()}, {.most = 3}, why);
    REQUIRE(!plans.empty());
    CHECK(plans[0].operands ==
          std::vector{cuda::Operand::image, cuda::Operand::weights, cuda::Operand::outputs, cuda::Operand::bias});
    call.fused = {0};
    if (type == DType::bfloat16) CHECK(!cuda::plans_of(call, {.device = device.get()}, {.compiled = 1}, why).empty());
  }
  // The graph with LeakyReLU is legal, whichever engine can run it.
  auto call = cuda::form_of(p, Pass::forward, DType::bfloat16).call;
  call.bias = true, call.fused = {0.01};
  const auto graph = cuda::graph_of(call, {});
  CHECK(graph.operands.size() == 4);
}

TEST_CASE("cuDNN plans: float32 is float32 unless TF32 is allowed") {
  const auto device = described_gpu(true, "cuDNN plans by precision");
  if (!device) return;
  const auto p = layer(32, 1, 32, 64);
  const auto has_tensor_cores = [&](DType type, bool tf32) {
    auto call = cuda::form_of(p, Pass::forward, type).call;
    call.tf32 = tf32;
    std::string why;
    bool found = false;
    for (const auto& plan : cuda::plans_of(call, {.device = device.get()}, {.most = 20, .built = 20, .compiled = 20}, why))
      for (const auto note : plan.notes) found = found || note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return found;
  };
  CHECK_FALSE(has_tensor_cores(DType::float32, false));
  CHECK(has_tensor_cores(DType::float32, true));
  CHECK(has_tensor_cores(DType::bfloat16, false));

  const cudnnBackendNumericalNote_t tensor[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
                                    winograd[] = {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4},
                                    halves[] = {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION},
                                    random[] = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  cuda::ConvCall single, half{.type = DType::bfloat16}, twice{.type = DType::float64}, fast{.tf32 = true},
      same{.type = DType::bfloat16, .deterministic = true};
  CHECK_FALSE(cuda::precise_enough(single, tensor));
  CHECK_FALSE(cuda::precise_enough(single, winograd));
  CHECK(cuda::precise_enough(fast, tensor));
  CHECK(cuda::precise_enough(half, tensor));
  CHECK(cuda::precise_enough(twice, tensor));
  CHECK_FALSE(cuda::precise_enough(half, halves));
  CHECK(cuda::precise_enough(half, random));
  CHECK_FALSE(cuda::precise_enough(same, random));
}

TEST_CASE("cuDNN plans: engines that need less memory come first") {
  const auto device = described_gpu(true, "cuDNN plans by memory");
  if (!device) return;
  auto call = cuda::form_of(layer(32, 1, 4, 16), Pass::forward, DType::bfloat16).call;
  std::string why;
  bool late = false;
  for (const auto& plan : cuda::plans_of(call, {.device = device.get()}, {.most = 20, .built = 20, .workspace = 0}, why)) {
    if (plan.workspace > 0) late = true;
    else CHECK_FALSE(late);
  }
  CHECK(late);
}

TEST_CASE("cuDNN plans: an error names the call and keeps cuDNN's text") {
  if (!described_gpu(true, "cuDNN errors")) return;
  cuda::Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  CHECK_THROWS_WITH_AS(tensor.finalize(), doctest::Contains("cudnnBackendFinalize failed: CUDNN_STATUS_BAD_PARAM"), Error);
}
