// Questions about cuDNN that its documentation does not answer, for one convolution at a time: the engine that it proposes on
// this GPU and for a described H200, the times to make and to run its plan, and whether activations keep NaN. Prints Markdown
// tables.
//
//   gpu_questions --size 128            on this GPU and for the described one
//   gpu_questions --described           only for the described one, on a machine without a GPU
//   gpu_questions --engines 40          finds engines that compute small random problems wrongly

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <optional>

#include "comm/launch.h"
#include "framework/base/error.h"
#include "framework/cuda/check.h"
#include "framework/cuda/cuda.h"
#include "models/train/session.h"
#include "ops/backends/cuda/scratch.h"
#include "ops/backends/cudnn/cudnn_plan.h"
#include "ops/gpu_settings.h"
#include "ops/random/random.h"
#include "tests/bench/gpu/engines.h"
#include "tests/bench/gpu/layers.h"
#include "tests/ops/conv/described_gpu.h"

namespace mpigrad::bench {
namespace {

using cuda::Pass;
using kernel::ConvProblem;
using kernel::volume;

struct Options {
  std::int64_t size = 128, batch = 1;
  std::int64_t engines = 0;
  bool described = false;
};
struct Precision {
  const char* name;
  DType type;
  bool tf32;
};
constexpr Precision precisions[] = {{"float32", DType::float32, false},
                                    {"TF32", DType::float32, true},
                                    {"bfloat16", DType::bfloat16, false},
                                    {"float16", DType::float16, false}};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The form and plan of a run without tuning, and the time to find them.
struct Answer {
  cuda::ConvForm form;
  std::optional<cuda::CudnnPlan> plan;
  double seconds = 0;
  std::string why;
};
Answer ask(const ConvProblem& p, Pass pass, const Precision& precision, const cuda::Target& target, double slope = 1) {
  Answer answer;
  // As without a setting (ops/backends/cudnn/conv_choice.h); the described H200 has 150 GB.
  const cuda::Search search{.compiled = slope == 1 ? 0U : 1U,
                            .workspace = target.handle ? cuda::workspace_limit(-1) : 150000000000 / 16};
  const double start = now();
  for (auto form : cuda::forms_of(p, pass, precision.type, precision.tf32)) {
    if (slope != 1) form.call.bias = true, form.call.fused = {slope};
    auto plans = cuda::plans_of(form.call, target, search, answer.why);
    if (plans.empty() && answer.why.empty()) answer.why = "cuDNN proposes nothing";
    if (plans.empty() || (answer.plan && !plans[0].fast)) continue;
    answer.form = form, answer.plan = std::move(plans[0]);
    if (answer.plan->fast || slope != 1) break;
  }
  answer.seconds = now() - start;
  return answer;
}

std::string notes_of(const cuda::CudnnPlan& plan) {
  std::string text;
  const std::pair<cudnnBackendNumericalNote_t, const char*> names[] = {
      {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, "tensor cores"},
      {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, "inputs rounded"},
      {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, "sums rounded"},
      {CUDNN_NUMERICAL_NOTE_FFT, "FFT"},
      {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, "order varies"},
      {CUDNN_NUMERICAL_NOTE_WINOGRAD, "Winograd"},
      {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, "keeps NaN"}};
  for (const auto& [note, name] : names)
    if (plan.has(note)) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text + (plan.compiled ? text.empty() ? "compiled" : ", compiled" : "");
}

std::string form_text(const cuda::ConvForm& form, const ConvProblem& p) {
  const auto& c = form.call;
  return fmt::format("{}{}{}", c.order == cuda::Order::channels_last ? "" : "channels first ", c.flat ? "2D " : "",
                     c.in_channels == p.in_channels && c.out_channels == p.out_channels
                         ? ""
                         : fmt::format("{} -> {} channels ", c.in_channels, c.out_channels)) +
         (form.moves_image || form.moves_outputs ? "copied" : "as it lies");
}

// Milliseconds per call, from several calls on random operands.
double run_plan(cudnnHandle_t handle, const Answer& answer) {
  const auto& c = answer.form.call;
  const UseDevice device(DeviceKind::cuda);
  const auto numbers = [&](std::int64_t n) { return random_normal({n}, {.key = 1}, 0, 1, c.type); };
  const auto image = numbers(c.batch * volume(c.in) * c.in_channels), outputs = numbers(c.batch * volume(c.out) * c.out_channels),
             weights = numbers(c.out_channels * volume(c.kernel) * (c.in_channels / c.groups)), bias = numbers(c.out_channels);
  const cuda::Scratch workspace(answer.plan->workspace);
  const auto round = [&](int calls) {
    const double start = now();
    for (int i = 0; i < calls; ++i)
      cuda::execute(handle, *answer.plan, {image.raw(), weights.raw(), outputs.raw(), bias.raw()}, workspace.data());
    cuda::synchronise(cuda::compute_stream());
    return (now() - start) / calls;
  };
  const double first = round(1);
  return 1e3 * round(first > 0.5 ? 1 : 10);
}

void table(const Options& o, cudnnHandle_t handle, const cuda::Descriptor* described) {
  fmt::print(
      "| layer | precision | pass | form | engine | notes | workspace, MiB | planned, ms | runs, ms | TFLOP/s | for an H200 |\n"
      "|---|---|---|---|--:|---|--:|--:|--:|--:|---|\n");
  const auto row = [&](const std::string& name, const ConvProblem& whole, Pass pass, const Precision& precision, double slope) {
    const auto p = cuda::slabs_of(whole, pass).front().problem;  // the first part of a large layer
    const auto here = ask(p, pass, precision, handle ? cuda::Target{.handle = handle} : cuda::Target{.device = described}, slope);
    const std::string what = std::string(cuda::name_of(pass)) + (slope == 1   ? ""
                                                                 : slope == 0 ? " + bias + ReLU"
                                                                              : " + bias + LeakyReLU");
    if (!here.plan) {
      fmt::print("| {} | {} | {} | none: {} | | | | | | | |\n", name, precision.name, what, here.why);
      return;
    }
    std::string runs, speed, elsewhere;
    if (handle) {
      try {
        const double ms = run_plan(handle, here);
        const double flops = 2.0 * static_cast<double>(p.batch * volume(p.out) * p.out_channels * volume(p.kernel)) *
                             static_cast<double>(p.in_channels / p.groups);
        runs = fmt::format("{:.3f}", ms), speed = fmt::format("{:.1f}", flops / ms * 1e-9);
      } catch (const Error& error) {
        runs = error.what();
      }
      if (described) {
        const auto there = ask(p, pass, precision, {.device = described}, slope);
        elsewhere = !there.plan                               ? "none"
                    : there.plan->engine == here.plan->engine ? "the same"
                                                              : fmt::format("engine {}", there.plan->engine);
      }
    }
    fmt::print("| {} | {} | {} | {} | {} | {} | {:.1f} | {:.1f} | {} | {} | {} |\n", name, precision.name, what,
               form_text(here.form, p), here.plan->engine, notes_of(*here.plan),
               static_cast<double>(here.plan->workspace) / 1048576.0, 1e3 * here.seconds, runs, speed, elsewhere);
    std::fflush(stdout);  // keeps the results if the command is killed
  };
  const auto layers = convolutions_of(CosmoFlowVariant::hybrid, o.size, o.batch);
  for (std::size_t i = 0; i < std::min<std::size_t>(layers.size(), 5); ++i)
    for (const auto& precision : precisions) {
      for (const auto pass : {Pass::forward, Pass::data, Pass::weight})
        if (pass != Pass::data || layers[i].needs_data_pass) row(layers[i].name, layers[i].problem, pass, precision, 1);
      if (i == 1)
        for (const double slope : {0.0, 0.01}) row(layers[i].name, layers[i].problem, Pass::forward, precision, slope);
    }
}

void answer(const Options& o) {
  std::unique_ptr<cuda::Descriptor> described;
  std::string not_described;
  try {
    described = testing::described_gpu(true);
  } catch (const Error& error) {
    not_described = error.what();
  }
  cudnnHandle_t handle{};
  if (o.described) {
    require(described != nullptr, "[bench] {}", not_described);
    fmt::print("cuDNN {}, planning for a described H200; batch {} of {}^3\n\n", cuda::cudnn().cudnnGetVersion(), o.batch, o.size);
  } else {
    require(cuda::available(), "[bench] {}", cuda::unavailable());
    const auto stream = cuda::native(cuda::compute_stream());
    cuda::check_cudnn(cuda::cudnn().cudnnCreate(&handle), "cudnnCreate");
    cuda::check_cudnn(cuda::cudnn().cudnnSetStream(handle, stream), "cudnnSetStream");
    fmt::print("{}, {:.1f} GiB; cuDNN {}; batch {} of {}^3{}{}\n\n", cuda::name(),
               static_cast<double>(cuda::total_memory()) / 1073741824.0, cuda::cudnn().cudnnGetVersion(), o.batch, o.size,
               not_described.empty() ? "" : "; no described H200: ", not_described);
  }
  table(o, handle, described.get());
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("cuDNN's plans for the convolutions of CosmoFlow, and their times");
  app.add_option("--size", o.size, "extent of the volume, a power of two")->check(CLI::Range(8, 1024))->capture_default_str();
  app.add_option("--batch", o.batch, "samples")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--described", o.described, "only plan, for a described H200");
  app.add_option("--engines", o.engines, "random problems for each precision, computed by every engine")
      ->check(CLI::PositiveNumber);
  // Parses this program's options first; the rest selects the device.
  app.allow_extras();
  CLI11_PARSE(app, argc, argv);
  return run(argc, argv, [&](Session&) { o.engines > 0 ? bench::check_engines(o.engines) : bench::answer(o); });
}
