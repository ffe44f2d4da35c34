// A noisy quadratic whose gradient noise scale is constant along the way, so that the law of large batches is exact.
//
// L(theta) = |theta|^2 / 2, and a sample's gradient is theta + |theta| sqrt(B_noise / d) xi with d standard normal numbers xi:
// tr(Sigma) = B_noise |G|^2 wherever theta is. A step of rate r with a batch B takes 1 - 2 r + r^2 (1 + B_noise / B) of the loss
// on average, least at r = 1 / (1 + B_noise / B). With a small fixed part f of that rate the loss falls by (2 f - f^2) / (1 +
// B_noise / B) of itself: steps to any quality are S = S_min (1 + B_noise / B), samples E = E_min (1 + B / B_noise). That is the
// law of McCandlish et al. 2018 but for terms of order f; at f = 1 one would have S proportional to 1 / log(1 + B / B_noise)
// instead.

#include <cmath>

#include "examples/studies/scaling/tasks/task.h"
#include "framework/tensor/random.h"
#include "models/data/sources/function.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad::scaling {
namespace {

constexpr std::int64_t dimensions = 64;
constexpr double noise_scale = 32, part = 0.02;

// [N, 1, 1, 1, d] of noise -> [N, 1]: per sample |theta|^2 / 2 + |theta| sqrt(B_noise / d) xi theta with |theta| held fixed,
// whose gradient is that of the sample; in evaluation only the first term.
struct Quadratic : nn::Module {
  Tensor operator()(const Tensor& x) override {
    const auto theta = parameter("theta", {dimensions}, nn::constant_value(1));
    const auto bowl = sum(square(theta)) * 0.5;
    const auto samples = x.dim(0);
    if (!training()) return broadcast_to(reshape(bowl, {1, 1}), {samples, 1});
    const auto length = sqrt(bowl * 2).as_constant();
    const auto noise = reshape(x, {samples, dimensions}) * (length * std::sqrt(noise_scale / dimensions));
    return sum(noise * theta, {1}, true) + bowl;
  }
};

data::SourcePtr noise(std::uint64_t seed, std::int64_t size) {
  data::FunctionSamples samples{.size = size, .extents = {1, 1, 1}, .channels = dimensions, .name = "noise"};
  samples.values = [seed](std::int64_t sample, const Box&, std::span<float> out) {
    const Philox random{seed, static_cast<std::uint64_t>(sample)};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(random.normal(i));
  };
  samples.targets = [](std::int64_t) { return std::vector{0.0}; };
  return std::make_shared<data::FunctionSource>(samples);
}

}  // namespace

Task quadratic(const TaskOptions& options) {
  Task task{.name = "quadratic", .error_name = "loss"};
  task.training = noise(options.seed, options.training > 0 ? options.training : 1 << 20);
  task.test = noise(options.seed + 1, options.test > 0 ? options.test : 16);
  task.make = [] { return std::make_unique<Quadratic>(); };
  task.loss = [](const Tensor& prediction, const Tensor&) { return mean(prediction); };
  task.error = [](const Tensor& prediction, const Tensor&) { return sum(prediction).item(); };
  task.goal = 0.32, task.batch = 4, task.budget = 200'000, task.every = 0;
  task.rate_law = [](int workers, std::int64_t batch) {
    return part / (1 + noise_scale / (static_cast<double>(workers) * static_cast<double>(batch)));
  };
  return task;
}

}  // namespace mpigrad::scaling
