#include "tests/bench/gpu/engines.h"

#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "framework/base/error.h"
#include "framework/cuda/check.h"
#include "framework/cuda/cuda.h"
#include "ops/backends/cuda/scratch.h"
#include "ops/backends/cudnn/cudnn_conv.h"
#include "ops/backends/cudnn/cudnn_plan.h"
#include "ops/views/to_device.h"
#include "tests/ops/kernel_problems.h"
#include "tests/support/relative_error.h"

namespace mpigrad::bench {
namespace {

using cuda::ConvCall;
using cuda::Pass;
using kernel::ConvProblem;
using Values = std::vector<double>;

struct Precision {
  const char* name;
  DType type;
  bool tf32;
  double tolerance;  // as in tests/ops/plain_comparison.h
};
constexpr Precision precisions[] = {{"float64", DType::float64, false, 1e-10},
                                    {"float32", DType::float32, false, 1e-5},
                                    {"TF32", DType::float32, true, 4e-3},
                                    {"bfloat16", DType::bfloat16, false, 1e-2},
                                    {"float16", DType::float16, false, 2e-3}};

struct Operand {
  Values values;
  Tensor tensor;
  Operand(std::int64_t elements, DType type) {
    const auto rounded = from_vector({elements}, testing::random_values<double>(elements), type);
    values = rounded.to_vector();
    tensor = to(rounded, DeviceKind::cuda);
  }
};

class Engines {
 public:
  Engines() {
    cuda::check_cudnn(cuda::cudnn().cudnnCreate(&handle_), "cudnnCreate");
    cuda::check_cudnn(cuda::cudnn().cudnnSetStream(handle_, cuda::native(cuda::compute_stream())), "cudnnSetStream");
  }

  void check(const ConvProblem& problem, Pass pass, const Precision& precision) {
    std::set<std::string> met;
    for (const auto& form : cuda::forms_of(problem, pass, precision.type, precision.tf32)) {
      const auto& call = form.call;
      // Channels first use the same engines at other addresses.
      if (call.order != cuda::Order::channels_last || !met.insert(cuda::to_string(call)).second) continue;
      std::string why;
      const auto plans =
          cuda::plans_of(call, {.handle = handle_}, {.most = 12, .built = 12, .compiled = 1, .defective = true}, why);
      if (!plans.empty()) check_plans(call, plans, precision);
    }
  }

  void print() const {
    fmt::print("\n| pass | precision | engine | padding equal: right | wrong | unequal: right | wrong | with wrong ones |\n");
    fmt::print("|---|---|--:|--:|--:|--:|--:|---|\n");
    for (const auto& [key, tally] : tallies_) {
      const auto& [pass, precision, engine] = key;
      fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} |\n", pass, precision, engine, tally.count[0][0], tally.count[0][1],
                 tally.count[1][0], tally.count[1][1], tally.first);
    }
  }

 private:
  struct Tally {
    int count[2][2] = {};  // [unequal padding][wrong result]
    std::string first;
  };

  void check_plans(const ConvCall& call, const std::vector<cuda::CudnnPlan>& plans, const Precision& precision) {
    const auto p = problem_of(call);
    const auto sizes = testing::sizes(p);
    Operand image(sizes.x, call.type), weights(sizes.w, call.type), outputs(sizes.y, call.type);
    Operand& result = call.pass == Pass::forward ? outputs : call.pass == Pass::data ? image : weights;
    Values wanted(result.values.size());
    if (call.pass == Pass::forward) cpu::reference::conv_forward(p, image.values.data(), weights.values.data(), wanted.data());
    if (call.pass == Pass::data) cpu::reference::conv_data(p, outputs.values.data(), weights.values.data(), wanted.data());
    if (call.pass == Pass::weight) cpu::reference::conv_weight(p, image.values.data(), outputs.values.data(), wanted.data());
    const bool unequal = call.pad_low != call.pad_high;
    for (const auto& plan : plans) {
      const cuda::Scratch workspace(plan.workspace);
      // NaN, so that missing writes are errors.
      const Values nothing(wanted.size(), std::numeric_limits<double>::quiet_NaN());
      result.tensor = to(from_vector(result.tensor.shape(), nothing, call.type), DeviceKind::cuda);
      cuda::execute(handle_, plan, {image.tensor.raw(), weights.tensor.raw(), outputs.tensor.raw(), nullptr}, workspace.data());
      const double error = testing::relative_error(result.tensor.to_vector(), wanted);
      const bool wrong = !(error < precision.tolerance);
      auto& tally = tallies_[{std::string(cuda::name_of(call.pass)), precision.name, plan.engine}];
      ++tally.count[unequal][wrong];
      if (!wrong) continue;
      if (tally.first.empty()) tally.first = cuda::to_string(call);
      if (++told_ <= 60)
        fmt::print("wrong by {:.1e}: engine {} place {}: {}\n", error, plan.engine, plan.place, cuda::to_string(call));
    }
  }

  cudnnHandle_t handle_{};
  std::map<std::tuple<std::string, std::string, std::int64_t>, Tally> tallies_;
  int told_ = 0;
};

}  // namespace

void check_engines(std::int64_t problems) {
  fmt::print("cuDNN {}, {} random problems for each precision\n\n", cuda::cudnn().cudnnGetVersion(), problems);
  Engines engines;
  for (const auto& precision : precisions)
    for (std::int64_t i = 0; i < problems; ++i) {
      const auto problem = testing::random_conv();
      for (const auto pass : {Pass::forward, Pass::data, Pass::weight}) engines.check(problem, pass, precision);
      std::fflush(stdout);
    }
  engines.print();
}

}  // namespace mpigrad::bench
