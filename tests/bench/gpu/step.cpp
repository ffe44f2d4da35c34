#include "tests/bench/gpu/step.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/collectives.h"
#include "framework/cost.h"
#include "framework/cuda/cuda.h"
#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/unet3d.h"
#include "models/nn/describe.h"
#include "models/train/step_graph.h"
#include "ops/elementwise.h"
#include "ops/gpu_settings.h"
#include "ops/loss.h"
#include "ops/random.h"

namespace mpigrad::bench {
namespace {

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr double mib = 1 << 20;
constexpr int warm_up = 3;  // plans are chosen, the allocator finds its segments

DType compute_type(const StepProblem& problem) { return problem.precision == "bfloat16" ? DType::bfloat16 : DType::float32; }

bool is_unet(const StepProblem& problem) { return problem.network == StepNetwork::unet3d; }

std::unique_ptr<nn::Module> network_of(const StepProblem& problem) {
  if (is_unet(problem)) return std::make_unique<UNet3d>();
  const bool mlperf = problem.network == StepNetwork::cosmoflow_mlperf;
  return std::make_unique<CosmoFlow>(CosmoFlowOptions{.variant = mlperf ? CosmoFlowVariant::mlperf : CosmoFlowVariant::hybrid});
}
Shape input_of(const StepProblem& problem) {
  const auto w = problem.width;
  return {problem.batch, w, w, w, is_unet(problem) ? 1 : 4};
}

double predicted_mib(const Session& session, const StepProblem& problem) {
  const auto net = network_of(problem);
  const auto description =
      describe(*net, input_of(problem),
               {.grid = {1, session.ranks(), 1, 1}, .compute = compute_type(problem), .optimizer = [](Parameters& p) {
                  return std::make_unique<Adam>(p);
                }});
  return static_cast<double>(description.peak_bytes) / mib;
}

double flops_of(const CostLog& log) {
  double sum = 0;
  for (const auto& line : log.lines) sum += line.flops;
  return sum;
}

}  // namespace

StepResult time_step(const Session& session, const StepProblem& problem, int steps) {
  auto settings = gpu_settings();
  settings.tf32 = problem.precision != "float32";
  set_gpu_settings(settings);
  const UseDevice device(DeviceKind::cuda);
  cuda::trim_memory();
  cuda::reset_peak_memory();

  const auto grid = session.grid({1, session.ranks(), 1, 1});
  const auto layout = activation_layout(grid, input_of(problem));
  const auto module = network_of(problem);
  auto& net = *module;
  net.build(layout, {.seed = 1, .compute = compute_type(problem)});
  Adam adam(net, AdamAttributes{.learning_rate = 1e-4});
  const Philox random{1, 2};
  const auto x = constant(random_normal(layout->global, random, 0, 1, DType::float32, layout));
  const auto w = problem.width;
  const auto target_layout = is_unet(problem) ? split_layout(grid, {problem.batch, w, w, w}, {0, 1, 2, 3})
                                              : split_layout(grid, {problem.batch, 4}, {0, -1, -1, -1});
  const auto y = constant(
      is_unet(problem)
          ? cast(random_uniform(target_layout->global, random.child(1), 0, 3, DType::float32, target_layout), DType::uint8)
          : random_normal(target_layout->global, random.child(1), 0, 1, DType::float32, target_layout));

  StepResult result;
  StepGraph graph(net, adam, session.world(),
                  {.warm_up = warm_up - 1, .reason = problem.graph ? "" : "nobody asked for it", .quiet = true});
  const StepGraph::Step step = [&](const std::vector<Tensor>& batch) {
    Tape tape(net);
    const auto output = cast(net(batch[0]), DType::float32);
    const auto share = is_unet(problem) ? cross_entropy(output, batch[1]) : mse(output, batch[1]);
    adam.step(tape.gradient(share));
    return share;
  };
  std::vector<double> seconds;
  Tensor loss;
  std::int64_t waits = 0;
  for (int i = -warm_up; i < steps; ++i) {
    session.world().transport().barrier();
    cuda::synchronise(cuda::compute_stream());
    const auto before = cuda::statistics().host_synchronisations;
    const double start = seconds_now();
    net.set_step(i + warm_up);
    std::optional<CostLog> log;
    if (i == -warm_up) log.emplace();  // an ordinary step, also where a later one is captured
    loss = graph({x, y}, step);
    if (log) result.flops = flops_of(*log) * session.ranks();
    log.reset();
    const auto after = cuda::statistics().host_synchronisations;
    cuda::synchronise(cuda::compute_stream());
    if (i >= 0) seconds.push_back(seconds_now() - start), waits += after - before;
  }
  std::sort(seconds.begin(), seconds.end());
  const auto memory = cuda::memory();
  result.median = seconds[seconds.size() / 2], result.fastest = seconds.front(), result.slowest = seconds.back();
  result.peak_mib = static_cast<double>(memory.peak) / mib;
  result.peak_reserved_mib = static_cast<double>(memory.peak_reserved) / mib;
  result.predicted_mib = predicted_mib(session, problem);
  result.waits = static_cast<double>(waits) / steps;
  result.loss = total(loss, session.world());
  result.not_captured = graph.reason();
  return result;
}

std::optional<StepResult> time_peer(const std::string& command, const StepProblem& problem, int steps, bool compiled) {
  if (problem.network == StepNetwork::cosmoflow_mlperf) return {};
  cuda::trim_memory();
  const std::string type = problem.precision == "bfloat16" ? "bf16" : problem.precision == "tf32" ? "tf32" : "fp32";
  const auto line =
      fmt::format("{} --model {} --device cuda --channels-last --size {} --batch {} --dtype {} --steps {} --warmup {}{} 2>&1",
                  command, is_unet(problem) ? "unet3d" : "cosmoflow", problem.width, problem.batch, type, steps, warm_up,
                  compiled ? " --compile" : "");
  std::string output;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(line.c_str(), "r"), pclose);
  require(pipe != nullptr, "[bench] {} cannot be run", line);
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), part.size(), pipe.get())) output += part.data();
  // Warnings may come before the line of JSON.
  const auto at = output.rfind("{\"peer\"");
  require(at != std::string::npos, "[bench] {} printed no result:\n{}", line, output);
  const auto json = nlohmann::json::parse(output.substr(at, output.find('\n', at) - at));
  return StepResult{.median = json.at("median_s"),
                    .fastest = json.at("min_s"),
                    .slowest = json.at("max_s"),
                    .peak_mib = json.at("peak_mib"),
                    .loss = json.at("loss")};
}

}  // namespace mpigrad::bench
