#pragma once
// The training loop of a network, and predictions; the same on one rank and on any grid.

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "framework/optim/loss_scale.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "models/data/data.h"
#include "models/nn/module.h"
#include "models/train/metrics.h"
#include "models/train/progress.h"
#include "ops/loss/loss.h"

namespace mpigrad {

// (prediction, target) -> loss of a batch; for a distributed batch a partial sum. Predictions have the dtype of the network,
// independent of the precision inside its layers. Converts from any such function and from the name of a loss of the library,
// with or without options: mse; cross_entropy; {cross_entropy, {.ignore_index = 255}}.
class LossFunction : public std::function<Tensor(const Tensor&, const Tensor&)> {
 public:
  using Base = std::function<Tensor(const Tensor&, const Tensor&)>;
  LossFunction() = default;
  template <class F>
  requires(!std::is_base_of_v<LossFunction, std::remove_cvref_t<F>> && std::is_constructible_v<Base, F>) LossFunction(F&& loss)
      : Base(std::forward<F>(loss)) {}
  LossFunction(Tensor (*loss)(const Tensor&, const Tensor&, Reduction), Reduction reduction = Reduction::mean)
      : Base([=](const Tensor& prediction, const Tensor& target) { return loss(prediction, target, reduction); }) {}
  template <class Options>
  LossFunction(Tensor (*loss)(const Tensor&, const Tensor&, const Options&), std::type_identity_t<Options> options = {})
      : Base([=](const Tensor& prediction, const Tensor& target) { return loss(prediction, target, options); }) {}
};

struct EpochReport {
  std::int64_t epoch = 0;  // from 0
  std::int64_t steps = 0;  // of the optimizer, so far; including skipped ones
  double loss = 0;         // mean over the samples during training (or weighted by FitOptions::weight)
  double learning_rate = 0, samples_per_second = 0, seconds = 0;
  double waiting_seconds = 0;      // of these, waiting for batches
  double loss_scale = 1;           // for the next step
  std::int64_t skipped_steps = 0;  // in the whole training, because of overflowed gradients
};

// Position within an epoch: completed steps of the optimizer, and the losses of their batches.
struct EpochPosition {
  std::int64_t steps = 0;
  RunningMean loss{};
};

class GradientNoise;
class StepProfile;
struct RankTimes;

struct FitOptions {
  std::int64_t epochs = 1;       // in total, including those before first_epoch
  std::int64_t first_epoch = 0;  // above 0 for a resumed training run
  // The position in first_epoch at which a resumed training run begins. The losses before it count in the mean loss of that
  // epoch.
  EpochPosition begin{};
  Schedule learning_rate{};             // as a function of the optimizer's step; none: the optimizer's own
  double clip_norm = 0;                 // global norm of the gradients; 0: no limit
  LossScale* loss_scale = nullptr;      // for layers in float16
  AveragedWeights* averages = nullptr;  // updated after every step of the optimizer
  // Number of micro-batches, which are batches of the loader, in a step of the optimizer. The gradient of the step is the
  // weighted mean of their gradients, and the loss of the epoch the weighted mean of their losses. The weight of a micro-batch is
  // its global number of samples, or what `weight` returns for its targets. `weight` must return the same number on all ranks:
  // for split targets, a sum over ranks. If the loss is a mean over the labels that are not ignored, let `weight` return the
  // number of these labels (cross_entropy_weight() of ops/loss/loss.h; on a GPU the host waits for it). Then the step does not
  // depend on how its samples are divided into micro-batches. Weights are relative to that of the first micro-batch of the step.
  // With a loss scale, the first micro-batch should therefore not have a weight that is orders of magnitude below the others.
  std::int64_t accumulate = 1;
  std::function<double(const Tensor& target)> weight{};
  // Holds all micro-batches of a step at once, and computes their losses in a scope of StepLabels (ops/loss/loss.h) with their
  // targets: gradients of losses that leave labels out are those of the whole batch. Instead of `weight`.
  bool whole_step = false;
  // On a GPU: captures a step after a few ordinary ones and then repeats it, without a call of the host for each kernel
  // (models/train/step_graph.h).
  bool graph = false;
  // Measures the gradient noise in every step (models/train/workers/noise_scale.h), which costs a pass over this rank's gradients
  // and a sum of one number over ranks. Needs several ranks with different samples, equally many each, and a loss that is a mean
  // over samples. With batch norm over all ranks the gradients of samples depend on each other, and the result is an estimate.
  GradientNoise* noise = nullptr;
  Progress* progress = nullptr;
  StepProfile* profile = nullptr;  // models/train/profile.h
  // After every step of the optimizer, on all ranks, with the steps so far in the epoch.
  std::function<void(std::int64_t epoch, std::int64_t steps)> after_step{};
  RankTimes* times = nullptr;  // adds the times of this rank's steps (models/train/stragglers.h)
  // Called after every step of the optimizer except the last of an epoch, on all ranks: if `interrupts` returns true, `interrupt`
  // is called with the position. If that returns true, on all ranks alike, training ends there and after_epoch is not called.
  std::function<bool(std::int64_t epoch, std::int64_t steps)> interrupts{};
  std::function<bool(std::int64_t epoch, const EpochPosition& position)> interrupt{};
  // Called after every epoch, on all ranks; its result ends the progress line.
  std::function<std::string(const EpochReport&)> after_epoch{};
  // Called after after_epoch; training ends if it returns true, on all ranks alike.
  std::function<bool(const EpochReport&)> stop{};
};

// Steps of the optimizer per epoch; a remainder of fewer than `accumulate` batches is not used.
std::int64_t optimizer_steps(const data::Loader& loader, std::int64_t accumulate);

// Trains the network. Collective. Errors: a loss that is not finite; a weight that is negative or not finite; no step in an
// epoch; options.noise on one rank, or where ranks share samples. On a GPU the host does not wait in a step: it reads each loss
// during the next step, so a loss that is not finite is found one step late, but before after_epoch.
void fit(nn::Module& net, Optimizer& optimizer, const data::Loader& loader, const LossFunction& loss, const Communicator& world,
         const FitOptions& options = {});

// Predictions for every sample of a loader, in its order of epoch 0, the same on every rank.
struct Predictions {
  std::int64_t outputs = 0, targets = 0;  // per sample
  std::vector<std::int64_t> samples;      // indices in the source
  std::vector<double> predicted, truth;   // [samples, outputs], [samples, targets]
};
// Collective. Runs the network in evaluation mode and restores its mode.
Predictions predict(nn::Module& net, const data::Loader& loader);

// The peak memory of this process so far, in bytes, as counted by the operating system.
std::int64_t peak_process_bytes();

}  // namespace mpigrad
