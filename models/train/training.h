#pragma once
// The loop that trains a network, and what it predicts afterwards; the same on one rank and on any grid.

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

// (prediction, target) -> loss of a batch; of a distributed batch a partial sum. Predictions are of the network's dtype, whatever
// its layers compute in. Converts from any such function and from the name of a loss of the library, with or without options:
// mse; cross_entropy; {cross_entropy, {.ignore_index = 255}}.
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
  std::int64_t steps = 0;  // of the optimizer, so far; skipped ones count
  double loss = 0;         // mean over the epoch's samples, as they were trained on (or by FitOptions::weight)
  double learning_rate = 0, samples_per_second = 0, seconds = 0;
  double waiting_seconds = 0;      // of these, until batches were there
  double loss_scale = 1;           // for the next step
  std::int64_t skipped_steps = 0;  // of the whole training, because gradients overflowed
};

// Where training stands within an epoch: steps of the optimizer behind it, and the losses of their batches.
struct EpochPosition {
  std::int64_t steps = 0;
  RunningMean loss{};
};

class GradientNoise;
class StepProfile;
struct RankTimes;

struct FitOptions {
  std::int64_t epochs = 1;              // in all, those before first_epoch included
  std::int64_t first_epoch = 0;         // when training goes on
  EpochPosition begin{};                // in first_epoch: the same losses, then, as if it had not stopped there
  Schedule learning_rate{};             // of the optimizer's step; none: the optimizer's own
  double clip_norm = 0;                 // global norm of the gradients; 0: no limit
  LossScale* loss_scale = nullptr;      // for layers that compute in float16
  AveragedWeights* averages = nullptr;  // updated behind every step of the optimizer
  // Micro-batches, which are batches of the loader, in a step of the optimizer. The step's gradient is the mean of theirs, and
  // the epoch's loss the mean of their losses, each with the weight of its micro-batch: its samples, or what `weight` returns for
  // its targets, the same on all ranks. A loss that is a mean over labels that count has their number as its weight
  // (cross_entropy_weight() of ops/loss/loss.h, for which the host waits for a GPU); the step is then the same however its
  // samples are cut into micro-batches. Factors are relative to the step's first micro-batch: with a loss scale its weight should
  // not be orders of magnitude below the others'.
  std::int64_t accumulate = 1;
  std::function<double(const Tensor& target)> weight{};
  // On a GPU: after a few steps one is captured and then repeated, without a call of the host for each kernel
  // (models/train/step_graph.h).
  bool graph = false;
  // Measured in every step (models/train/workers/noise_scale.h), for a pass over this rank's gradients and one number that ranks
  // add up. Where each of several ranks has samples of its own, all alike many; of losses that are means over samples. With batch
  // norm over all ranks gradients of samples depend on each other, and it is an estimate.
  GradientNoise* noise = nullptr;
  Progress* progress = nullptr;
  StepProfile* profile = nullptr;  // models/train/profile.h
  RankTimes* times = nullptr;      // of this rank's steps, added to what is there (models/train/stragglers.h)
  // After every step of the optimizer but the last of an epoch, on all ranks: whether `interrupt` is called, then, with what is
  // behind. Training ends there if it says so, on all ranks alike; after_epoch is not called.
  std::function<bool(std::int64_t epoch, std::int64_t steps)> interrupts{};
  std::function<bool(std::int64_t epoch, const EpochPosition& position)> interrupt{};
  // After every epoch, on all ranks; what it returns closes the line of progress.
  std::function<std::string(const EpochReport&)> after_epoch{};
  // Behind that; training ends if it says so, on all ranks alike.
  std::function<bool(const EpochReport&)> stop{};
};

// Steps per epoch; a rest of fewer than `accumulate` batches is left out.
std::int64_t optimizer_steps(const data::Loader& loader, std::int64_t accumulate);

// Collective. Errors: a loss that is not finite; a weight that is negative or not finite; no step in an epoch; options.noise on
// one rank, or where ranks share samples. On a GPU the host does not wait in a step: it reads each loss while the next step is
// computed, so that one that is not finite is found a step late, but before after_epoch.
void fit(nn::Module& net, Optimizer& optimizer, const data::Loader& loader, const LossFunction& loss, const Communicator& world,
         const FitOptions& options = {});

// Predictions for every sample of a loader, in its order of epoch 0, the same on every rank.
struct Predictions {
  std::int64_t outputs = 0, targets = 0;  // per sample
  std::vector<std::int64_t> samples;      // numbers in the source
  std::vector<double> predicted, truth;   // [samples, outputs], [samples, targets]
};
// Collective. Runs the network in evaluation mode and leaves it in the mode in which it was.
Predictions predict(nn::Module& net, const data::Loader& loader);

// The most memory that this process has held so far, as the operating system counts it.
std::int64_t peak_process_bytes();

}  // namespace mpigrad
