#pragma once
// Virtual workers: W workers of data-parallel training simulated on P <= W ranks, with the arithmetic of W ranks, so that
// training with 64 workers can be studied on two cores. On P = W ranks each has one worker, and this is a data-parallel training.
//
//   Workers workers(world, make_network, {4, 1, 16, 16, 1}, {.seed = 1}, make_optimizer, {.workers = 64});
//   for (auto& [x, y] : loader.epoch(0)) workers.step(x, y, loss);

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "framework/optim/optimizer.h"
#include "models/nn/module.h"
#include "models/train/training.h"

namespace mpigrad {

enum class Synchronisation : std::uint8_t {
  gradients,  // gradients are averaged in every step: all workers have the same weights
  weights,    // independent steps; after every `every` steps weights and statistics become their mean (periodic averaging)
  gossip,     // the same, but means over random pairs of workers (Boyd et al. 2006)
};

struct WorkersOptions {
  int workers = 1;  // total number; a multiple of the number of ranks
  Synchronisation synchronisation = Synchronisation::gradients;
  std::int64_t every = 1;  // steps between averagings of weights
  std::uint64_t seed = 0;  // of the pairs of gossip
  double clip_norm = 0;    // limit of the norm of the gradient of a step; 0: none
};

struct WorkersStep {
  double loss = 0;  // mean of all workers
  // For NoiseScale: the mean of |G|^2 over workers, and |G|^2 of their mean gradient, which is NaN unless
  // Synchronisation::gradients.
  double small_squared_norm = 0, big_squared_norm = 0;
};

// Each worker has its own running statistics of norms within a step, from its own samples; they are averaged after the step
// (gradients), or at the next averaging. With weights or gossip each worker has its own state of the optimizer, which is not
// averaged. Random layers draw different numbers for each worker. Networks must be in host memory, without layouts.
class Workers {
 public:
  // Error: a loss is not finite.
  class Diverged : public Error {
   public:
    using Error::Error;
  };
  using MakeNetwork = std::function<std::unique_ptr<nn::Module>()>;
  using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
  // `input`: shape of the batch of one worker. All workers begin with the same weights. Collective. Errors: the workers cannot be
  // divided evenly among ranks.
  Workers(const Communicator& world, const MakeNetwork& make, const Shape& input, const nn::BuildOptions& build,
          const MakeOptimizer& optimizer, const WorkersOptions& options);

  int workers() const { return options_.workers; }
  int local() const { return options_.workers / world_.size(); }  // workers of this rank: first(), first() + 1, ...
  int first() const { return world_.rank() * local(); }

  // Makes a step. x [local() b, ...] and y: samples of this rank's workers, in the order of workers. The loss is a mean over
  // samples of one worker. Collective. Diverged, on all ranks: a loss that is not finite.
  WorkersStep step(const Tensor& x, const Tensor& y, const LossFunction& loss);
  void set_learning_rate(double rate);
  std::int64_t steps() const { return steps_; }

  // A network with the mean of all workers' weights and statistics, valid until the next step. Collective if weights differ.
  nn::Module& mean();
  // Numbers on this rank: networks, and bytes of their parameters, statistics and optimizer states.
  std::int64_t copies() const { return static_cast<std::int64_t>(replicas_.size()) + (mean_ ? 1 : 0); }
  std::int64_t bytes() const;

 private:
  struct Replica {
    std::unique_ptr<nn::Module> net;
    std::unique_ptr<Optimizer> optimizer;
  };
  WorkersStep step_gradients(const std::vector<Tensor>& xs, const std::vector<Tensor>& ys, const LossFunction& loss);
  WorkersStep step_apart(const std::vector<Tensor>& xs, const std::vector<Tensor>& ys, const LossFunction& loss);
  std::vector<double> mean_state();
  void average();
  void gossip();

  Communicator world_;
  WorkersOptions options_;
  std::vector<Replica> replicas_;     // one with Synchronisation::gradients, else local()
  std::unique_ptr<nn::Module> mean_;  // only if weights differ
  std::int64_t steps_ = 0;
};

}  // namespace mpigrad
