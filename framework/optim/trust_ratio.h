#pragma once
// Optimizers for large batches: each parameter's step is scaled by the ratio of its norm to that of its step. Two passes over the
// arenas instead of one, since the norms come first. Biases and parameters of norms (`decay` false) are not scaled.
//
//   LARS lars(parameters, {.learning_rate = 0.3 * batch / 256});
//   const schedule::WarmUp rate{.steps = 1000, .then = schedule::Cosine{.rate = 4.8, .steps = 100000}};

#include "framework/optim/optimizer.h"

namespace mpigrad {

// Makes squared norms, two for each parameter (of weights, of what they are compared with), those of whole parameters. Parameters
// that are the same on all ranks need nothing, and those of a split layout are added up without it; of parameters that are cut
// over ranks otherwise, each rank hands in its part's squares, which are to be summed over these ranks: sum_norms_over() of
// comm/distributed/optimizer_reductions.h makes such a function. Called once a step, on every rank.
using NormReduction = std::function<void(const Parameters& parameters, std::span<double> squares)>;

class TrustRatioOptimizer : public Optimizer {
 protected:
  TrustRatioOptimizer(Parameters& parameters, double learning_rate, double weight_decay,
                      const std::vector<ParameterGroup>& groups, std::vector<std::string> slots, NormReduction reduce_norms);

  struct Squares {
    double weights = 0, step = 0;
  };
  // Sums of squares of a piece, some thousand elements at most; may update its state. Called by several threads at once.
  virtual Squares measure(const Piece& piece) const = 0;
  virtual double trust_of(const Squares& squares, double weight_decay) const = 0;
  // On a GPU: squares of the group's segments, two doubles each, and the update that reads them. The host waits for nothing
  // unless the norms are reduced over ranks.
  virtual void measure_on_gpu(const GpuGroup& group, const GradientScale& scale, double* squares) const = 0;
  virtual void apply_on_gpu(const GpuGroup& group, const GradientScale& scale, const double* squares) const = 0;

 private:
  void prepare(std::span<Piece> pieces) override;
  void update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const override;
  NormReduction reduce_norms_;
};

struct LarsAttributes {
  double learning_rate = 0.1, momentum = 0.9, weight_decay = 1e-6;
  double trust = 1e-3;  // eta of the paper
  double epsilon = 0;   // added to the norms that are divided by
  std::vector<ParameterGroup> groups{};
  NormReduction reduce_norms{};
};

// You, Gitman and Ginsburg 2017:
//   ratio = trust |p| / (|g| + weight_decay |p| + epsilon), 1 where one of the norms |p|, |g| is 0 and for biases and norms
//   v <- momentum v + rate ratio (g + weight_decay p);  p <- p - v
class LARS : public TrustRatioOptimizer {
 public:
  explicit LARS(Parameters& parameters, const LarsAttributes& attributes = {});

 private:
  Squares measure(const Piece& piece) const override;
  double trust_of(const Squares& squares, double weight_decay) const override;
  void update(const Piece& piece) const override;
  void measure_on_gpu(const GpuGroup& group, const GradientScale& scale, double* squares) const override;
  void apply_on_gpu(const GpuGroup& group, const GradientScale& scale, const double* squares) const override;
  LarsRule rule(const GradientScale& scale) const;
  LarsAttributes attributes_;
};

struct LambAttributes {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, weight_decay = 1e-2;
  std::vector<ParameterGroup> groups{};
  NormReduction reduce_norms{};
};

// You et al. 2020:
//   m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2
//   s = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p,  t = 1, 2, ...
//   p <- p - rate (|p| / |s|) s, where the ratio is 1 if one of the norms is 0 and for biases and norms
class LAMB : public TrustRatioOptimizer {
 public:
  explicit LAMB(Parameters& parameters, const LambAttributes& attributes = {});

 private:
  std::array<double, 2> corrections() const override;
  Squares measure(const Piece& piece) const override;
  double trust_of(const Squares& squares, double weight_decay) const override;
  void update(const Piece& piece) const override;
  void measure_on_gpu(const GpuGroup& group, const GradientScale& scale, double* squares) const override;
  void apply_on_gpu(const GpuGroup& group, const GradientScale& scale, const double* squares) const override;
  LambRule rule(const GradientScale& scale) const;
  LambAttributes attributes_;
};

}  // namespace mpigrad
