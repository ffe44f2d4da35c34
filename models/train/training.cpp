#include "models/train/training.h"

#include <sys/resource.h>

#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "comm/collectives/collectives.h"
#include "comm/distributed/redistribute.h"
#include "framework/cuda/staging.h"
#include "framework/engine/activity.h"
#include "framework/engine/buckets.h"
#include "models/nn/pipeline.h"
#include "models/train/profile.h"
#include "models/train/step_graph.h"
#include "models/train/stragglers.h"
#include "models/train/workers/noise_scale.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace {

// The elements of all parts, one after the other.
std::vector<double> values_of(const std::vector<Tensor>& parts) {
  std::vector<double> values;
  for (const auto& part : parts) {
    const auto more = part.to_vector();
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

// The losses of steps that the host has not read yet. On a GPU a loss is read after the next step has been issued.
class Losses {
 public:
  struct Step {
    std::int64_t epoch = 0, step = 0, samples = 0;
    double weight = 0, loss = 0;
  };
  // `arrived` is called for the steps in order, on all ranks after the same calls.
  Losses(const Communicator& world, std::function<void(const Step&)> arrived) : world_(world), arrived_(std::move(arrived)) {}
  void add(const Tensor& share, const Step& step) {
    if (share.device() != DeviceKind::cuda) return arrive(step, total(detail::local_item(share), share.layout(), world_));
    require(share.elements() == 1, "[fit] a loss has one element: {}", share);
    values_.add(share);
    pending_.push_back({step, share.layout()});
    if (pending_.size() > 1) take();
  }
  void arrive(Step step, double loss) {
    step.loss = loss;
    require(std::isfinite(step.loss), "[fit] the loss is {} in epoch {}, step {}: a smaller learning rate or clipping may help",
            step.loss, step.epoch + 1, step.step + 1);
    arrived_(step);
  }
  void finish() {
    while (!pending_.empty()) take();
  }

 private:
  struct Pending {
    Step step;
    LayoutPtr layout;
  };
  void take() {
    const auto value = values_.take();
    const auto first = std::move(pending_.front());
    pending_.pop_front();
    arrive(first.step, total(value, first.layout, world_));
  }

  const Communicator& world_;
  std::function<void(const Step&)> arrived_;
  cuda::Readbacks values_;
  std::deque<Pending> pending_;  // losses of values_
};

// The number of elements of weights that are trained.
std::int64_t trained_elements(const Parameters& parameters) {
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) elements += parameters[i].frozen ? 0 : parameters[i].value.elements();
  return elements;
}

// Weighs the micro-batches of a step. The gradient of each gets a factor at once, relative to the first with a weight above 0,
// and the sum gets the remaining factor, which is 1 if all weights are equal.
class MicroBatches {
 public:
  explicit MicroBatches(std::int64_t count) : count_(static_cast<double>(count)) {}
  // The factor of the next micro-batch's loss.
  double factor(double weight) {
    require(std::isfinite(weight) && weight >= 0, "[fit] a micro-batch's weight is a number of 0 or more, got {}", weight);
    if (first_ == 0) first_ = weight;
    sum_ += weight;
    if (count_ == 1) return 1;  // a loss of weight 0 is 0; a captured step keeps its factor
    return weight == 0 ? 0 : weight / (first_ * count_);
  }
  // The factor of the sum of the gradients, after the last micro-batch of the step.
  double rest() {
    const double rest = sum_ == 0 ? 1 : first_ * count_ / sum_;
    first_ = sum_ = 0;
    return rest;
  }

 private:
  double count_, first_ = 0, sum_ = 0;
};

// Sets the numbers of samples of the gradients in `noise`.
void begin_noise(GradientNoise& noise, const data::Loader& loader, const Communicator& world, std::int64_t accumulate) {
  const auto layout = loader.layout();
  const auto samples = loader.shape()[0] * accumulate;
  require(
      layout->grid->extents[0] == world.size() && world.size() > 1 && loader.shape()[0] % world.size() == 0,
      "[fit] the gradient noise scale is measured on two or more ranks that each have as many samples of their own; a batch of "
      "{} on {} rank{} is not split so",
      loader.shape()[0], world.size(), world.size() == 1 ? "" : "s");
  noise.begin(samples / world.size(), samples);
}

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
  require(options.begin.steps >= 0 && options.begin.steps < steps,
          "[fit] training is resumed after {} steps of an epoch that has {}", options.begin.steps, steps);
  require(!options.interrupts || options.interrupt, "[fit] options.interrupts needs options.interrupt");
  net.parameters().require_nothing_accumulated("fit");
  net.train();
  RunningMean mean;
  double samples = 0;
  Losses losses(world, [&](const Losses::Step& at) {
    mean.add(at.loss, at.weight);
    samples += static_cast<double>(at.samples);
    if (options.progress) options.progress->step(at.samples, at.loss);
  });
  bool last = true;  // last micro-batch of a step
  double weight = 0;
  MicroBatches parts(options.accumulate);
  const auto update = [&](const Gradients& gradients, double rest) {
    if (!options.loss_scale) return optimizer.step(gradients, {.scale = rest, .max_norm = options.clip_norm});
    if (const auto taken = options.loss_scale->unscaled(gradients, options.clip_norm / rest))
      optimizer.step(gradients, {.scale = taken->scale * rest});
  };
  const StepGraph::Step one_step = [&](const std::vector<Tensor>& batch) {
    Tape tape(net);
    const auto share = loss(cast(net(batch[0]), net.dtype()), batch[1]);
    const double scale = options.loss_scale ? options.loss_scale->value() : 1;
    const double factor = scale * parts.factor(weight), rest = last ? parts.rest() : 1;
    const auto objective = factor == 1 ? share : share * factor;
    std::optional<LocalGradientNorm> local_norm;
    if (options.noise && last) local_norm.emplace();
    const auto gradients = tape.gradient(objective, {.accumulate = !last});
    if (local_norm) {
      require(
          local_norm->elements() == trained_elements(net.parameters()),
          "[fit] the gradient noise scale cannot be measured: of {} weights' gradients {} are added up over ranks in one piece; "
          "weights in parts are not",
          trained_elements(net.parameters()), local_norm->elements());
      // A rank's share is 1 / P of the mean over its samples.
      const double unscale = rest / scale;
      double small = local_norm->squared() * world.size() * unscale * unscale;
      world.transport().allreduce(&small, &small, 1, DType::float64, CombineOp::sum);
      options.noise->add(small, squared_norm(gradients) * unscale * unscale);
    }
    if (last) update(gradients, rest);
    return share;
  };
  auto* const pipeline = net.pipeline().get();
  require(!options.whole_step || !options.weight, "[fit] options.whole_step and options.weight: one of the two");
  require(!pipeline || !options.noise, "[fit] the gradient noise scale is not measured in a pipeline");
  struct Held {
    Tensor x, y;
    Losses::Step at;
  };
  // The micro-batches of a step, of a pipeline or with options.whole_step.
  std::vector<Held> held;
  const bool whole_step = options.whole_step && options.accumulate > 1;
  const auto labels_of_step = [&] {
    std::vector<Tensor> labels;
    for (const auto& each : held) labels.push_back(pipeline ? pipeline->target(each.y) : each.y);
    return labels;
  };
  const auto held_step = [&](std::int64_t first_step) {
    const StepLabels scope(labels_of_step());
    for (std::size_t i = 0; i < held.size(); ++i) {
      last = i + 1 == held.size(), weight = held[i].at.weight;
      net.set_step(first_step + static_cast<std::int64_t>(i));
      losses.add(one_step({held[i].x, held[i].y}), held[i].at);
    }
    held.clear();
  };
  const auto pipelined_step = [&](std::int64_t first_step) {
    const double scale = options.loss_scale ? options.loss_scale->value() : 1;
    std::vector<double> factors;
    for (const auto& each : held) factors.push_back(scale * parts.factor(each.at.weight));
    std::vector<Tensor> shares(held.size());
    const auto labels = whole_step ? labels_of_step() : std::vector<Tensor>();
    const auto of_micro = [&](std::int64_t m) {
      const auto i = static_cast<std::size_t>(m);
      std::optional<StepLabels> scope;
      if (whole_step) scope.emplace(labels);
      shares[i] = loss(cast(net(pipeline->input(held[i].x)), net.dtype()), pipeline->target(held[i].y));
      return factors[i] == 1 ? shares[i] : shares[i] * factors[i];
    };
    const auto step = pipeline->gradient(net, static_cast<std::int64_t>(held.size()), of_micro, first_step);
    update(step.gradients, parts.rest());
    if (options.averages) options.averages->update();
    const auto totals = pipeline->totals(shares);
    for (std::size_t i = 0; i < held.size(); ++i) losses.arrive(held[i].at, totals[i]);
    held.clear();
  };
  if (options.noise) begin_noise(*options.noise, loader, world, options.accumulate);
  std::optional<StepGraph> graph;
  if (options.graph)
    graph.emplace(net, optimizer, world,
                  StepGraphOptions{.reason = options.loss_scale       ? "the host reads the gradients for the loss scale"
                                             : options.accumulate > 1 ? "several batches make a step"
                                             : pipeline               ? "stages exchange messages"
                                             : options.noise          ? "the host reads the gradients for their noise"
                                                                      : ""});
  for (auto epoch = options.first_epoch; epoch < options.epochs; ++epoch) {
    const auto start = detail::seconds_now();
    const auto begin = epoch == options.first_epoch ? options.begin : EpochPosition{};
    if (options.progress) options.progress->begin_epoch(epoch, begin.steps * options.accumulate);
    mean = begin.loss, samples = 0;
    auto micro = begin.steps * options.accumulate;
    bool interrupted = false;
    double waiting = 0;
    StepClock clock(options.times);
    clock.start();
    auto asked = detail::seconds_now();
    for (const auto& batch : loader.epoch(epoch, micro)) {
      const double waited = detail::seconds_now() - asked;
      waiting += waited;
      clock.batch(waited);
      if (micro == steps * options.accumulate) break;
      if (options.profile) options.profile->waited_for_data(waited);
      if (options.profile && micro % options.accumulate == 0) options.profile->begin_step();
      const auto step = epoch * steps + micro / options.accumulate;
      last = ++micro % options.accumulate == 0;
      // Every micro-batch has different dropout masks.
      net.set_step(epoch * steps * options.accumulate + micro - 1);
      if (options.learning_rate) optimizer.set_learning_rate(options.learning_rate(step));
      const auto n = global_shape(batch.x)[0];
      weight = options.weight ? options.weight(batch.y) : static_cast<double>(n);
      const Losses::Step at{.epoch = epoch, .step = step, .samples = n, .weight = weight};
      if (pipeline || whole_step) {
        held.push_back({batch.x, batch.y, at});
        const auto first_step = epoch * steps * options.accumulate + micro - options.accumulate;
        if (last && pipeline) pipelined_step(first_step);
        else if (last) held_step(first_step);
        if (last && !pipeline && options.averages) options.averages->update();
      } else {
        const auto share = graph ? (*graph)({batch.x, batch.y}, one_step) : one_step({batch.x, batch.y});
        if (last && options.averages) options.averages->update();
        losses.add(share, at);
      }
      if (options.profile && last) options.profile->end_step();
      if (last) clock.step();
      const auto behind = micro / options.accumulate;
      if (last && options.after_step) options.after_step(epoch, behind);
      if (last && behind < steps && options.interrupts && options.interrupts(epoch, behind)) {
        losses.finish();
        const detail::SlowPhase phase;  // writes files
        interrupted = options.interrupt(epoch, {behind, mean});
        if (interrupted) break;
        clock.start();
      }
      asked = detail::seconds_now();
    }
    losses.finish();
    if (graph) graph->release();  // frees its memory for the work after an epoch
    if (interrupted) return;
    const double seconds = detail::seconds_now() - start;
    EpochReport report{.epoch = epoch,
                       .steps = (epoch + 1) * steps,
                       .loss = mean.mean(),
                       .learning_rate = optimizer.learning_rate(),
                       .samples_per_second = samples / seconds,
                       .seconds = seconds,
                       .waiting_seconds = waiting};
    if (options.loss_scale) report.loss_scale = options.loss_scale->value(), report.skipped_steps = options.loss_scale->skipped();
    std::string text;
    if (options.after_epoch) {
      const detail::SlowPhase phase;  // evaluation and files
      text = options.after_epoch(report);
    }
    if (options.progress) options.progress->end_epoch(text);
    if (options.stop && options.stop(report)) break;
  }
}

Predictions predict(nn::Module& net, const data::Loader& loader) {
  Untaped scope;
  nn::EvaluationMode mode(net);
  const detail::SlowPhase phase;
  Predictions result;
  std::vector<Tensor> predicted, truth;  // copied to the host when all work is issued
  const auto whole = [](const Tensor& x) { return x.layout() ? gather_all(x) : x; };
  std::int64_t step = 0;
  for (const auto& batch : loader.epoch(0)) {
    const auto samples = loader.samples_of(0, step++);
    result.samples.insert(result.samples.end(), samples.begin(), samples.end());
    predicted.push_back(whole(cast(net.run_everywhere(batch.x), net.dtype())));
    truth.push_back(whole(batch.y));
  }
  result.predicted = values_of(predicted), result.truth = values_of(truth);
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
