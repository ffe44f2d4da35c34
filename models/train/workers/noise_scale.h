#pragma once
// The gradient noise scale (McCandlish, Kaplan, Amodei et al. 2018, arXiv 1812.06162), which data-parallel training measures at
// almost no cost, and the number of workers that it predicts to be useful.

#include <cstdint>
#include <optional>

namespace mpigrad {

// B_noise = tr(Sigma) / |G|^2, where Sigma is the covariance of one sample's gradient and G the mean gradient. From squared norms
// of gradients of two batch sizes (their appendix A.1), both estimates without bias:
//
//   |G|^2     = (B_big |G_big|^2 - B_small |G_small|^2) / (B_big - B_small)
//   tr(Sigma) = (|G_small|^2 - |G_big|^2) / (1 / B_small - 1 / B_big)
//
// The result is a quotient of two exponential averages with corrected start. Only for losses that are means over samples, because
// only their gradients are means over samples.
class NoiseScale {
 public:
  // Numbers of samples of both gradients. Errors: not 0 < small < big; decay outside [0, 1).
  NoiseScale(std::int64_t small, std::int64_t big, double decay = 0.98);
  // Adds a step: the mean of |G_small|^2 over the workers, and |G_big|^2. A step whose norms are not finite, as when a loss scale
  // is too large, does not count.
  void add(double small_squared_norm, double big_squared_norm);
  std::int64_t steps() const { return steps_; }
  // NaN before the first step. The estimate of |G|^2 may be negative if noise dominates.
  double variance() const;          // tr(Sigma)
  double squared_gradient() const;  // |G|^2
  // B_noise in samples; infinite if |G|^2 is not positive.
  double value() const;

 private:
  double small_, big_, decay_, variance_ = 0, gradient_ = 0, weight_ = 0;
  std::int64_t steps_ = 0;
};

// The critical batch of a training along which the noise scale changed. If steps of batch B make 1 / (1 + B_noise / B) of the
// progress of a step without noise, a training needs the sum over that progress of (1 + B_noise / B) steps: B_c is the mean of
// B_noise weighted by 1 / (1 + B_noise / B), and E(B) = E_min (1 + B / B_c).
class CriticalBatch {
 public:
  explicit CriticalBatch(std::int64_t batch) : batch_(static_cast<double>(batch)) {}
  // Adds a step. Infinite: the step made no measurable progress and used B samples; negative, which is possible for an unbiased
  // estimate: no noise. Omitting such steps would bias the mean. NaN does not count.
  void add(double noise_scale);
  // B_c in samples; NaN before the first step, infinite if no step made progress.
  double value() const;

 private:
  double batch_, sum_ = 0, weight_ = 0;
  bool any_ = false;
};

// Noise scale and critical batch of a training, measured by fit() if ranks have different samples (FitOptions::noise).
class GradientNoise {
 public:
  // Samples per step of one rank's gradient, and of the gradient of all ranks; fit() calls it before the first step.
  void begin(std::int64_t small, std::int64_t big);
  void add(double small_squared_norm, double big_squared_norm);
  std::int64_t steps() const { return scale_ ? scale_->steps() : 0; }
  double value() const;           // the noise scale, of the last steps; NaN before the first
  double critical_batch() const;  // the critical batch, of all steps so far

 private:
  std::optional<NoiseScale> scale_;
  std::optional<CriticalBatch> critical_;
};

// The samples that one worker needs to reach a quality, divided by those that `workers` need, each with `batch` samples a step:
// (1 + b / B_c) / (1 + P b / B_c).
double statistical_efficiency(double batch, double workers, double critical_batch);

}  // namespace mpigrad
