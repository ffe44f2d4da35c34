#include "tests/bench/gpu/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>

#include "framework/base/error.h"
#include "framework/cuda/check.h"
#include "framework/cuda/cuda.h"
#include "ops/backends/cuda/scratch.h"
#include "ops/backends/cudnn/cudnn_conv.h"
#include "ops/backends/cudnn/cudnn_plan.h"
#include "ops/gpu_settings.h"
#include "ops/random/random.h"

namespace mpigrad::bench {
namespace {

using kernel::ConvProblem;
using kernel::volume;

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The best of some rounds; a round is long enough to hide the launches.
double time_of(const std::function<void()>& call) {
  const auto round = [&](int calls) {
    cuda::synchronise(cuda::compute_stream());
    const double start = seconds_now();
    for (int i = 0; i < calls; ++i) call();
    cuda::synchronise(cuda::compute_stream());
    return (seconds_now() - start) / calls;
  };
  call();
  const double once = std::max(round(2), 1e-6);
  const int calls = std::clamp(static_cast<int>(0.02 / once), 2, 200);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) best = std::min(best, round(calls));
  return best;
}

// Random numbers: multiplying zeros takes less power and therefore less time.
Tensor numbers(std::int64_t elements, DType type) {
  const UseDevice device(DeviceKind::cuda);
  return random_normal({elements}, {.key = 1}, 0, 1, type);
}

cudnnHandle_t handle() {
  static cudnnHandle_t const made = [] {
    cudnnHandle_t result{};
    cuda::check_cudnn(cuda::cudnn().cudnnCreate(&result), "cudnnCreate");
    cuda::check_cudnn(cuda::cudnn().cudnnSetStream(result, cuda::native(cuda::compute_stream())), "cudnnSetStream");
    return result;
  }();
  return made;
}

// The fastest plan of any form for one slab.
double bare_slab(const ConvProblem& p, cuda::Pass pass, DType type) {
  const auto settings = gpu_settings();
  double best = std::numeric_limits<double>::infinity();
  std::string why = "it proposes none";
  const cuda::Search search{.most = 16, .built = 16, .compiled = 4, .workspace = cuda::workspace_limit(settings.workspace)};
  for (auto form : cuda::forms_of(p, pass, type, settings.tf32)) {
    auto& c = form.call;
    c.deterministic = settings.deterministic;
    const auto image = numbers(c.batch * volume(c.in) * c.in_channels, type);
    const auto weights = numbers(c.out_channels * volume(c.kernel) * (c.in_channels / c.groups), type);
    const auto outputs = numbers(c.batch * volume(c.out) * c.out_channels, type);
    for (const auto& plan : cuda::plans_of(c, {.handle = handle()}, search, why)) {
      const auto workspace = numbers((plan.workspace + size_of(type) - 1) / size_of(type), type);
      const cuda::ConvOperands at{image.raw(), weights.raw(), outputs.raw(), nullptr};
      best = std::min(best, time_of([&] { cuda::execute(handle(), plan, at, workspace.raw()); }));
    }
  }
  require(best < std::numeric_limits<double>::infinity(), "[bench] cuDNN has no plan: {}", why);
  return best;
}

double bare_time(const ConvProblem& p, cuda::Pass pass, DType type) {
  std::vector<std::pair<ConvProblem, double>> known;
  double sum = 0;
  for (const auto& slab : cuda::slabs_of(p, pass)) {
    const auto same = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.first == slab.problem; });
    if (same != known.end()) {
      sum += same->second;
      continue;
    }
    known.emplace_back(slab.problem, bare_slab(slab.problem, pass, type));
    sum += known.back().second;
  }
  return sum;
}

}  // namespace

std::vector<ConvLayer> convolutions_of(CosmoFlowVariant variant, std::int64_t width, std::int64_t batch) {
  const bool hybrid = variant == CosmoFlowVariant::hybrid;
  const std::vector<std::int64_t> filters =
      hybrid ? std::vector<std::int64_t>{16, 32, 64, 128, 256, 256, 256} : std::vector<std::int64_t>{32, 64, 128, 256, 512};
  std::vector<ConvLayer> layers;
  std::int64_t channels = 4, extent = width;
  for (std::size_t i = 0; i < filters.size(); ++i) {
    const std::int64_t stride = hybrid && i == 3 && extent > 4 ? 2 : 1, out = (extent + stride - 1) / stride;
    layers.push_back({.name = fmt::format("conv{}", i + 1),
                      .problem = {.batch = batch,
                                  .in = {extent, extent, extent},
                                  .out = {out, out, out},
                                  .kernel = {3, 3, 3},
                                  .stride = {stride, stride, stride},
                                  .pad_low = {1, 1, 1},
                                  .in_channels = channels,
                                  .out_channels = filters[i]},
                      .needs_data_pass = i > 0});
    channels = filters[i];
    extent = hybrid && out <= 2 ? out : hybrid ? (out + 1) / 2 : out / 2;
  }
  return layers;
}

std::vector<ConvLayer> convolutions_of_unet(std::int64_t width, std::int64_t batch) {
  const std::int64_t filters[] = {32, 64, 128, 256, 320, 320}, levels = 5;
  std::vector<ConvLayer> layers;
  const auto add = [&](std::string name, std::int64_t extent, std::int64_t kernel, std::int64_t stride, std::int64_t in,
                       std::int64_t out, bool needs_data_pass = true) {
    const auto behind = extent / stride, pad = (kernel - 1) / 2;
    layers.push_back({.name = std::move(name),
                      .problem = {.batch = batch,
                                  .in = {extent, extent, extent},
                                  .out = {behind, behind, behind},
                                  .kernel = {kernel, kernel, kernel},
                                  .stride = {stride, stride, stride},
                                  .pad_low = {pad, pad, pad},
                                  .in_channels = in,
                                  .out_channels = out},
                      .needs_data_pass = needs_data_pass});
  };
  for (std::int64_t i = 0; i <= levels; ++i) {
    const auto f = filters[i];
    const auto name = i == levels ? "bottom" : fmt::format("down{}", i + 1);
    if (i == 0) add(name + ".conv1", width, 3, 1, 1, f, false);
    else add(name + ".conv1", width >> (i - 1), 3, 2, filters[i - 1], f);
    add(name + ".conv2", width >> i, 3, 1, f, f);
  }
  for (std::int64_t i = levels - 1; i >= 0; --i) {
    const auto f = filters[i], extent = width >> i;
    add(fmt::format("up{}.expand", i + 1), extent, 2, 2, f, filters[i + 1]);
    add(fmt::format("up{}.conv1", i + 1), extent, 3, 1, 2 * f, f);
    add(fmt::format("up{}.conv2", i + 1), extent, 3, 1, f, f);
  }
  add("head", width, 1, 1, filters[0], 3);
  return layers;
}

ConvTimes time_layer(const ConvLayer& layer, DType type) {
  const auto& p = layer.problem;
  const auto image = numbers(p.batch * volume(p.in) * p.in_channels, type);
  const auto weights = numbers(p.out_channels * volume(p.kernel) * p.in_channels, type);
  const auto outputs = numbers(p.batch * volume(p.out) * p.out_channels, type);
  ConvTimes times;
  times.forward.ours = time_of([&] { cuda::conv_forward(type, p, image.raw(), weights.raw(), outputs.raw()); });
  times.forward.activation =
      time_of([&] { cuda::conv_forward(type, p, image.raw(), weights.raw(), outputs.raw(), {.fused = {0.01}}); });
  times.forward.bare = bare_time(p, cuda::Pass::forward, type);
  if (layer.needs_data_pass) {
    times.data.ours = time_of([&] { cuda::conv_data(type, p, outputs.raw(), weights.raw(), image.raw()); });
    times.data.bare = bare_time(p, cuda::Pass::data, type);
  }
  times.weight.ours = time_of([&] { cuda::conv_weight(type, p, image.raw(), outputs.raw(), weights.raw()); });
  times.weight.bare = bare_time(p, cuda::Pass::weight, type);
  return times;
}

}  // namespace mpigrad::bench
