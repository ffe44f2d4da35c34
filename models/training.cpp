#include "models/training.h"

#include <sys/resource.h>

#include <chrono>
#include <cmath>

#include "comm/collectives.h"
#include "comm/redistribute.h"
#include "ops/elementwise.h"

namespace mpigrad {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void append(std::vector<double>& values, const Tensor& x) {
  const auto more = (x.layout() ? gather_all(x) : x).to_vector();
  values.insert(values.end(), more.begin(), more.end());
}

// Restores a network's mode.
class EvaluationMode {
 public:
  explicit EvaluationMode(nn::Module& net) : net_(net), training_(net.training()) { net_.train(false); }
  ~EvaluationMode() { net_.train(training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  nn::Module& net_;
  bool training_;
};

}  // namespace

std::int64_t optimizer_steps(const data::Loader& loader, std::int64_t accumulate) {
  require(accumulate > 0, "[fit] gradients of at least one batch make a step, got {}", accumulate);
  return loader.steps() / accumulate;
}

void fit(nn::Module& net, Optimizer& optimizer, const data::Loader& loader, const LossFunction& loss, const Communicator& world,
         const FitOptions& options) {
  const auto steps = optimizer_steps(loader, options.accumulate);
  require(steps > 0, "[fit] an epoch has no step: {} samples, batches of {}, {} of them per step", loader.samples(),
          loader.shape()[0], options.accumulate);
  net.train();
  for (auto epoch = options.first_epoch; epoch < options.epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    if (options.progress) options.progress->begin_epoch(epoch);
    RunningMean mean;
    double samples = 0;
    std::int64_t micro = 0;
    for (const auto& batch : loader.epoch(epoch)) {
      if (micro == steps * options.accumulate) break;
      const auto step = epoch * steps + micro / options.accumulate;
      const bool last = ++micro % options.accumulate == 0;
      // Every micro-batch has dropout masks of its own.
      net.set_step(epoch * steps * options.accumulate + micro - 1);
      if (options.learning_rate) optimizer.set_learning_rate(options.learning_rate(step));
      Tape tape(net);
      const auto share = loss(cast(net(batch.x), net.dtype()), batch.y);
      const double factor = (options.loss_scale ? options.loss_scale->value() : 1) / static_cast<double>(options.accumulate);
      const auto objective = factor == 1 ? share : share * factor;
      const auto gradients = tape.gradient(objective, {.accumulate = !last});
      if (last && options.loss_scale) {
        if (const auto step = options.loss_scale->unscaled(gradients, options.clip_norm))
          optimizer.step(gradients, {.scale = step->scale});
      } else if (last) {
        const double scale = options.clip_norm > 0 ? clip_global_norm(gradients, options.clip_norm).scale : 1;
        optimizer.step(gradients, {.scale = scale});
      }
      const double value = total(share, world);
      require(std::isfinite(value), "[fit] the loss is {} in epoch {}, step {}: a smaller learning rate or clipping may help",
              value, epoch + 1, step + 1);
      const auto n = batch.x.layout() ? batch.x.layout()->global[0] : batch.x.dim(0);
      mean.add(value, static_cast<double>(n));
      samples += static_cast<double>(n);
      if (options.progress) options.progress->step(n, value);
    }
    const double seconds = seconds_since(start);
    EpochReport report{epoch, (epoch + 1) * steps, mean.mean(), optimizer.learning_rate(), samples / seconds, seconds};
    if (options.loss_scale) report.loss_scale = options.loss_scale->value(), report.skipped_steps = options.loss_scale->skipped();
    const auto text = options.after_epoch ? options.after_epoch(report) : std::string();
    if (options.progress) options.progress->end_epoch(text);
  }
}

Predictions predict(nn::Module& net, const data::Loader& loader) {
  Untaped scope;
  EvaluationMode mode(net);
  Predictions result;
  std::int64_t step = 0;
  for (const auto& batch : loader.epoch(0)) {
    const auto samples = loader.samples_of(0, step++);
    result.samples.insert(result.samples.end(), samples.begin(), samples.end());
    append(result.predicted, cast(net(batch.x), net.dtype()));
    append(result.truth, batch.y);
  }
  const auto n = static_cast<std::int64_t>(result.samples.size());
  if (n == 0) return result;
  result.outputs = static_cast<std::int64_t>(result.predicted.size()) / n;
  result.targets = static_cast<std::int64_t>(result.truth.size()) / n;
  return result;
}

std::int64_t peak_process_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace mpigrad
