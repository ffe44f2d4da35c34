#pragma once
// Logical workers: W workers of data-parallel training on P <= W ranks, with the arithmetic of W ranks, so that what 64 workers
// learn can be studied on two cores. On P = W ranks each has one worker, and this is a data-parallel training.
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
  gradients,  // averaged in every step: all workers have the same weights
  weights,    // each steps by itself; every so many steps weights and running statistics become their mean (periodic averaging)
  gossip,     // the same, but means of two: pairs of workers drawn anew each time (Boyd et al. 2006)
};

struct WorkersOptions {
  int workers = 1;  // of all ranks; a multiple of their number
  Synchronisation synchronisation = Synchronisation::gradients;
  std::int64_t every = 1;  // steps from one averaging of weights to the next
  std::uint64_t seed = 0;  // of gossip's pairs
  double clip_norm = 0;    // of the gradient that makes a step; 0: no limit
};

struct WorkersStep {
  double loss = 0;  // mean of all workers
  // |G|^2: mean of the workers' own, and that of their mean gradient, for NoiseScale. The latter of `gradients` alone, else NaN.
  double small_squared_norm = 0, big_squared_norm = 0;
};

// Running statistics of norms are each worker's own within a step, of its own samples, and their mean counts behind it
// (gradients), or behind the next averaging. The optimizer's state is each worker's own and is not averaged. Random layers draw
// other numbers for each worker. Networks in host memory, without layouts.
class Workers {
 public:
  // A loss that is not finite.
  class Diverged : public Error {
   public:
    using Error::Error;
  };
  using MakeNetwork = std::function<std::unique_ptr<nn::Module>()>;
  using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
  // `input`: of one worker's batch. All begin with the same weights. Collective. Errors: workers that ranks cannot share evenly.
  Workers(const Communicator& world, const MakeNetwork& make, const Shape& input, const nn::BuildOptions& build,
          const MakeOptimizer& optimizer, const WorkersOptions& options);

  int workers() const { return options_.workers; }
  int local() const { return options_.workers / world_.size(); }  // of this rank, one after the other from first() on
  int first() const { return world_.rank() * local(); }

  // x [local() b, ...] and y: samples of this rank's workers, in their order. The loss is a mean over samples of one worker.
  // Collective. Diverged, on all ranks: a loss that is not finite.
  WorkersStep step(const Tensor& x, const Tensor& y, const LossFunction& loss);
  void set_learning_rate(double rate);
  std::int64_t steps() const { return steps_; }

  // A network with the mean of all workers' weights and statistics, until the next step. Collective where weights differ.
  nn::Module& mean();
  // On this rank: networks, and bytes of parameters, statistics and states of optimizers.
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
  std::vector<Replica> replicas_;     // one of `gradients`, else local() of them
  std::unique_ptr<nn::Module> mean_;  // where weights differ
  std::int64_t steps_ = 0;
};

}  // namespace mpigrad
