#pragma once
// Running averages of batch statistics; evaluation normalises with them.

#include "ops/norm/channel_norm.h"

namespace mpigrad {

// running = momentum * running + (1 - momentum) * batch, for mean and variance; the batch's variance is first multiplied by
// `correction`. One kernel updates them in place on a GPU, so that a captured step continues to use the same memory. Elsewhere
// the results are new tensors.
void update_running(Tensor& mean, Tensor& variance, const BatchNormStatistics& batch, double momentum, double correction);

namespace ops {

// Inputs: mean, variance, those of the batch, and the destinations, which may be the old ones: [C] each. No outputs.
struct RunningAverages {
  double momentum = 0, correction = 1;
  static constexpr OpTraits traits() { return {.name = "running_averages", .differentiable = false}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
};

}  // namespace ops
}  // namespace mpigrad
