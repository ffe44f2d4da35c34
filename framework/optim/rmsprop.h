#pragma once
// RMSprop (Tieleman and Hinton 2012, lecture 6.5), as PyTorch has it.

#include "framework/optim/optimizer.h"

namespace mpigrad {

struct RmspropAttributes {
  double learning_rate = 1e-2;
  double smoothing = 0.99;  // of the mean square; alpha in PyTorch
  double epsilon = 1e-8, momentum = 0, weight_decay = 0;
  std::vector<ParameterGroup> groups{};
};

// g <- g + weight_decay p;  s <- smoothing s + (1 - smoothing) g^2;  d = g / (sqrt(s) + epsilon);
// with momentum v <- momentum v + d and d = v;  p <- p - rate d
class RMSprop : public Optimizer {
 public:
  // Errors: smoothing or momentum outside [0, 1), a negative epsilon.
  explicit RMSprop(Parameters& parameters, const RmspropAttributes& attributes = {});

 private:
  void update(const Piece& piece) const override;
  void update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const override;
  RmspropRule rule(const GradientScale& scale) const;
  RmspropAttributes attributes_;
};

}  // namespace mpigrad
