// Converts options of trainings to types, optimizers, schedules and settings of libraries.

#include <algorithm>
#include <cmath>

#include "comm/distributed/optimizer_reductions.h"
#include "comm/transport/fixed_order.h"
#include "framework/optim/optimizer.h"
#include "models/trainer/options.h"
#include "ops/gpu_settings.h"

namespace mpigrad::trainer {

DType dtype_of(const Options& o) { return o.dtype == "float64" || o.precision == "float64" ? DType::float64 : DType::float32; }

std::optional<DType> compute_of(const Options& o) {
  if (o.precision == "bfloat16") return DType::bfloat16;
  if (o.precision == "float16") return DType::float16;
  return std::nullopt;
}

std::string precision_of(const Options& o) { return o.precision.empty() ? o.dtype : o.precision; }

std::unique_ptr<LossScale> make_loss_scale(const Options& o, const Communicator& world) {
  if (o.precision != "float16") return nullptr;
  return std::make_unique<LossScale>(LossScaleAttributes{.ranks = world.size(), .agree = all_agree(world)});
}

void apply_precision(const Options& o) {
  auto settings = gpu_settings();
  settings.tf32 = o.precision == "tf32";
  set_gpu_settings(settings);
}

StatisticsOver statistics_of(const Options& o) {
  using enum StatisticsOver;
  return o.statistics == "all"       ? all
         : o.statistics == "spatial" ? spatial_group
         : o.statistics == "batch"   ? batch_group
                                     : StatisticsOver::local;
}

bool takes_momentum(const Options& o) {
  const auto names = optimizers_with_momentum();
  return std::find(names.begin(), names.end(), o.optimizer) != names.end();
}

std::unique_ptr<Optimizer> make_optimizer(Parameters& parameters, const Options& o) {
  const auto& all = o.optimizer_options;
  if (o.nesterov)
    return std::make_unique<SGD>(
        parameters,
        SGDAttributes{
            .learning_rate = all.learning_rate, .momentum = all.momentum, .nesterov = true, .weight_decay = all.weight_decay});
  return mpigrad::make_optimizer(o.optimizer, parameters, all);
}

std::unique_ptr<AveragedWeights> make_averages(Parameters& parameters, const Options& o) {
  if (o.average_weights == 0) return nullptr;
  return std::make_unique<AveragedWeights>(parameters, AveragedWeightsAttributes{.decay = o.average_weights});
}

std::vector<double> boundaries_of(const Options& o) {
  const auto epochs = static_cast<double>(o.training.fit.epochs);
  return o.milestones.empty() ? std::vector{0.5 * epochs, 0.75 * epochs} : o.milestones;
}

Schedule make_schedule(const Options& o, std::int64_t steps_per_epoch) {
  const auto steps = [&](double epochs) { return std::llround(epochs * static_cast<double>(steps_per_epoch)); };
  const auto epochs = static_cast<double>(o.training.fit.epochs);
  const auto warm_up = steps(std::min(o.warm_up, epochs));
  const auto after = std::max<std::int64_t>(1, steps(epochs) - warm_up);
  const double first = o.optimizer_options.learning_rate;
  Schedule rate = schedule::Constant{.rate = first};
  if (o.schedule == "cosine") rate = schedule::Cosine{.rate = first, .steps = after};
  if (o.schedule == "linear") rate = schedule::Polynomial{.rate = first, .steps = after};
  if (o.schedule == "polynomial") rate = schedule::Polynomial{.rate = first, .steps = after, .power = o.power};
  if (o.schedule == "step") {
    schedule::Step step{.rate = first, .factor = o.decay_factor};
    for (const double epoch : boundaries_of(o)) step.milestones.push_back(std::max<std::int64_t>(0, steps(epoch) - warm_up));
    rate = step;
  }
  return warm_up > 0 ? Schedule(schedule::WarmUp{.steps = warm_up, .then = rate}) : rate;
}

void apply_device_options(const Options& o) {
  auto settings = gpu_settings();
  settings.autotune = o.autotune, settings.deterministic = o.deterministic;
  set_gpu_settings(settings);
  set_fixed_order(o.deterministic);
}

}  // namespace mpigrad::trainer
