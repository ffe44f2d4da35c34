#pragma once
// Running averages of the statistics of batches, with which evaluation normalises.

#include "ops/norm/channel_norm.h"

namespace mpigrad {

// running = momentum * running + (1 - momentum) * batch, of mean and variance; the batch's variance is times `correction` first.
// On a GPU in place, by one kernel: a captured step goes on with the memory that it began with. Elsewhere new tensors.
void update_running(Tensor& mean, Tensor& variance, const BatchNormStatistics& batch, double momentum, double correction);

namespace ops {

// mean, variance, those of the batch, and where the new ones go, which may be where the old ones are: [C] each. Has no outputs.
struct RunningAverages {
  double momentum = 0, correction = 1;
  static constexpr OpTraits traits() { return {.name = "running_averages", .differentiable = false}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
};

}  // namespace ops
}  // namespace mpigrad
