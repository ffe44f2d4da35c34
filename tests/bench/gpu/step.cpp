#include "tests/bench/gpu/step.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/halos/exchange.h"
#include "framework/cuda/cuda.h"
#include "framework/cuda/timer.h"
#include "framework/engine/cost.h"
#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/unet3d.h"
#include "models/nn/describe.h"
#include "models/train/step_graph.h"
#include "models/train/training.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_settings.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"

namespace mpigrad::bench {
namespace {

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr double mib = 1 << 20;
constexpr int warm_up = 3;  // plans are chosen, the allocator gets its segments

DType compute_type(const StepProblem& problem) { return problem.precision == "bfloat16" ? DType::bfloat16 : DType::float32; }

bool is_unet(const StepProblem& problem) { return problem.network == StepNetwork::unet3d; }

std::unique_ptr<nn::Module> network_of(const StepProblem& problem) {
  if (is_unet(problem)) return std::make_unique<UNet3d>();
  const auto variant = problem.network == StepNetwork::cosmoflow_mlperf    ? CosmoFlowVariant::mlperf
                       : problem.network == StepNetwork::cosmoflow_pyramid ? CosmoFlowVariant::pyramid
                                                                           : CosmoFlowVariant::hybrid;
  return std::make_unique<CosmoFlow>(CosmoFlowOptions{.variant = variant});
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

// Random numbers for a step.
std::vector<Tensor> batch_of(const GridPtr& grid, const StepProblem& problem) {
  const Philox random{1, 2};
  const auto w = problem.width;
  const auto layout = activation_layout(grid, input_of(problem));
  const bool unet = is_unet(problem);
  const auto targets =
      unet ? split_layout(grid, {problem.batch, w, w, w}, {0, 1, 2, 3}) : split_layout(grid, {problem.batch, 4}, {0, -1, -1, -1});
  return {constant(random_normal(layout->global, random, 0, 1, DType::float32, layout)),
          constant(unet ? cast(random_uniform(targets->global, random.child(1), 0, 3, DType::float32, targets), DType::uint8)
                        : random_normal(targets->global, random.child(1), 0, 1, DType::float32, targets))};
}

// A network in training.
class Training {
 public:
  Training(const Session& session, const StepProblem& problem)
      : unet_(is_unet(problem)), module_(network_of(problem)), grid_(session.grid({1, session.ranks(), 1, 1})) {
    net().build(activation_layout(grid_, input_of(problem)), {.seed = 1, .compute = compute_type(problem)});
    adam_ = std::make_unique<Adam>(net(), AdamAttributes{.learning_rate = 1e-4});
    batch = batch_of(grid_, problem);
  }
  nn::Module& net() { return *module_; }
  Adam& adam() { return *adam_; }
  const GridPtr& grid() const { return grid_; }
  Tensor operator()(const std::vector<Tensor>& of) {
    Tape tape(net());
    const auto output = cast(net()(of[0]), DType::float32);
    const auto share = unet_ ? cross_entropy(output, of[1]) : mse(output, of[1]);
    adam_->step(tape.gradient(share));
    return share;
  }
  std::vector<Tensor> batch;

 private:
  bool unet_;
  std::unique_ptr<nn::Module> module_;
  GridPtr grid_;
  std::unique_ptr<Adam> adam_;
};

void set_precision(const StepProblem& problem) {
  auto settings = gpu_settings();
  settings.tf32 = problem.precision != "float32";
  set_gpu_settings(settings);
}

}  // namespace

StepResult time_step(const Session& session, const StepProblem& problem, int steps) {
  set_precision(problem);
  const UseDevice device(DeviceKind::cuda);
  cuda::trim_memory();
  cuda::reset_peak_memory();

  Training training(session, problem);
  StepResult result;
  StepGraph graph(training.net(), training.adam(), session.world(),
                  {.warm_up = warm_up - 1, .reason = problem.graph ? "" : "not requested", .quiet = true});
  const StepGraph::Step step = [&](const std::vector<Tensor>& batch) { return training(batch); };
  std::vector<double> seconds;
  Tensor loss;
  std::int64_t waits = 0;
  for (int i = -warm_up; i < steps; ++i) {
    session.world().transport().barrier();
    cuda::synchronise(cuda::compute_stream());
    if (i == 0) result.peak_mib = static_cast<double>(cuda::memory().peak) / mib, cuda::reset_peak_memory();
    const auto before = cuda::statistics().host_synchronisations;
    const double start = seconds_now();
    training.net().set_step(i + warm_up);
    std::optional<CostLog> log;
    if (i == -warm_up) log.emplace();  // an ordinary step, even if a later one is captured
    loss = graph(training.batch, step);
    if (log) result.flops = flops_of(*log) * session.ranks();
    log.reset();
    const auto after = cuda::statistics().host_synchronisations;
    cuda::synchronise(cuda::compute_stream());
    if (i >= 0) seconds.push_back(seconds_now() - start), waits += after - before;
  }
  std::sort(seconds.begin(), seconds.end());
  const auto memory = cuda::memory();
  result.median = seconds[seconds.size() / 2], result.fastest = seconds.front(), result.slowest = seconds.back();
  result.step_mib = static_cast<double>(memory.peak) / mib;
  result.peak_mib = std::max(result.peak_mib, result.step_mib);
  result.peak_reserved_mib = static_cast<double>(memory.peak_reserved) / mib;
  result.predicted_mib = predicted_mib(session, problem);
  result.waits = static_cast<double>(waits) / steps;
  result.loss = total(loss, session.world());
  result.not_captured = graph.reason();
  return result;
}

std::vector<OpTime> time_ops(const Session& session, const StepProblem& problem, int steps) {
  set_precision(problem);
  const UseDevice device(DeviceKind::cuda);
  cuda::trim_memory();
  Training training(session, problem);
  std::vector<CostLog::Line> lines;
  std::vector<double> best;
  for (int i = -warm_up; i < steps; ++i) {
    training.net().set_step(i + warm_up);
    std::vector<std::unique_ptr<cuda::Timer>> timers;
    const auto begin = [&] { timers.emplace_back(std::make_unique<cuda::Timer>())->begin(cuda::compute_stream()); };
    CostLog log;
    log.told = [&] {
      timers.back()->end(cuda::compute_stream());
      begin();
    };
    timers.reserve(4096);
    begin();
    (void)training(training.batch);
    timers.back()->end(cuda::compute_stream());
    log.lines.emplace_back().op = "(behind the last op)";
    log.told = nullptr;
    if (i < 0) continue;
    if (lines.empty()) lines = log.lines, best.assign(lines.size(), std::numeric_limits<double>::infinity());
    require(lines.size() == timers.size() && log.lines.size() == lines.size(), "[bench] steps of the same network differ");
    for (std::size_t k = 0; k < timers.size(); ++k) best[k] = std::min(best[k], timers[k]->seconds());
  }
  std::vector<OpTime> times;
  for (std::size_t k = 0; k < lines.size(); ++k) {
    const auto& line = lines[k];
    std::string operands;
    for (const auto& shape : line.inputs) operands += fmt::format("{} ", shape);
    operands += "->";
    for (const auto& shape : line.outputs) operands += fmt::format(" {}", shape);
    auto at = std::find_if(times.begin(), times.end(), [&](const auto& t) { return t.op == line.op && t.operands == operands; });
    if (at == times.end()) at = times.insert(at, {.op = std::string(line.op), .operands = operands});
    ++at->calls, at->seconds += best[k], at->bytes += line.bytes, at->flops += line.flops;
  }
  std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

std::vector<SoakLine> soak(const Session& session, const StepProblem& problem, const std::vector<std::int64_t>& batches,
                           int steps) {
  set_precision(problem);
  const UseDevice device(DeviceKind::cuda);
  cuda::trim_memory();
  Training training(session, problem);
  std::vector<std::vector<Tensor>> of;
  for (const auto n : batches) {
    auto other = problem;
    other.batch = n;
    of.push_back(batch_of(training.grid(), other));
  }
  constexpr int lines = 10;
  std::vector<SoakLine> result;
  Tensor loss;
  for (int i = 0; i < steps; ++i) {
    training.net().set_step(i);
    loss = training(of[static_cast<std::size_t>(i) % of.size()]);
    if ((i + 1) * lines / steps == i * lines / steps) continue;
    cuda::synchronise(cuda::compute_stream());
    const auto memory = cuda::memory();
    result.push_back({.steps = i + 1,
                      .mib = static_cast<double>(memory.current) / mib,
                      .reserved_mib = static_cast<double>(memory.peak_reserved) / mib,
                      .process_mib = static_cast<double>(peak_process_bytes()) / mib,
                      .loss = total(loss, session.world())});
  }
  return result;
}

double halo_rate(const Session& session, std::int64_t width, DType type) {
  constexpr int repeats = 50;
  const UseDevice device(DeviceKind::cuda);
  const auto grid = session.grid({1, session.ranks(), 1, 1});
  const auto layout = activation_layout(grid, {1, width, width, width, 32});
  const auto x = random_normal(layout->global, {1, 2}, 0, 1, type, layout).without_layout();
  BoxPlan plan;
  for (int r = 0; r < session.ranks(); ++r) {
    const auto have = layout->box(r);
    auto need = have;
    need.begin[1] = std::max<std::int64_t>(0, have.begin[1] - 1), need.end[1] = std::min(width, have.end[1] + 1);
    plan.have.push_back(have), plan.need.push_back(need);
  }
  const auto mine = static_cast<std::size_t>(session.rank());
  const double bytes = static_cast<double>((plan.need[mine].elements() - plan.have[mine].elements()) * size_of(type));
  const auto shared = std::make_shared<const BoxPlan>(plan);
  const Untaped scope;
  double start = 0;
  for (int i = -warm_up; i < repeats; ++i) {
    if (i == 0) {
      cuda::synchronise(cuda::compute_stream());
      session.world().transport().barrier();
      start = seconds_now();
    }
    (void)exchange(x, session.world(), shared);
  }
  cuda::synchronise(cuda::compute_stream());
  return repeats * bytes / (seconds_now() - start);
}

std::optional<StepResult> time_peer(const std::string& command, const StepProblem& problem, int steps, bool compiled) {
  if (problem.network != StepNetwork::cosmoflow && !is_unet(problem)) return {};
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
  // Warnings may precede the line of JSON.
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
