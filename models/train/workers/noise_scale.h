#pragma once
// The gradient noise scale (McCandlish, Kaplan, Amodei et al. 2018, arXiv 1812.06162), which data-parallel training measures at
// no cost, and what it says of how many workers still help.

#include <cstdint>
#include <optional>

namespace mpigrad {

// B_noise = tr(Sigma) / |G|^2, where Sigma is the covariance of one sample's gradient and G the mean gradient. From squared norms
// of gradients of two batch sizes (their appendix A.1), both estimates without bias:
//
//   |G|^2     = (B_big |G_big|^2 - B_small |G_small|^2) / (B_big - B_small)
//   tr(Sigma) = (|G_small|^2 - |G_big|^2) / (1 / B_small - 1 / B_big)
//
// A quotient of averages is taken, each an exponential one whose start is corrected for. Only for losses that are means over
// samples: gradients of others are no means of samples' gradients.
class NoiseScale {
 public:
  // Samples of the gradients, in each of the two. Error: not 0 < small < big, decay outside [0, 1).
  NoiseScale(std::int64_t small, std::int64_t big, double decay = 0.98);
  // Of one step: the mean of |G_small|^2 over the workers, and |G_big|^2. A step whose norms are not finite, as where a loss
  // scale was too large, does not count.
  void add(double small_squared_norm, double big_squared_norm);
  std::int64_t steps() const { return steps_; }
  // NaN before the first step. |G|^2 may come out negative where noise is all there is.
  double variance() const;          // tr(Sigma)
  double squared_gradient() const;  // |G|^2
  // In samples; infinite where |G|^2 is not positive.
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
  // Of one step. Infinite: it made no progress that could be told, and took B samples; negative, which an estimate without bias
  // may be: no noise. To leave such steps out would take the mean of those that happened to look better, or worse. NaN does not
  // count.
  void add(double noise_scale);
  // In samples; NaN before the first step, infinite where none made progress.
  double value() const;

 private:
  double batch_, sum_ = 0, weight_ = 0;
  bool any_ = false;
};

// Both, of a training's steps, measured by fit() where every rank has samples of its own (FitOptions::noise).
class GradientNoise {
 public:
  // Samples of a rank's gradient in a step, and of all ranks'; fit() tells them before the first step.
  void begin(std::int64_t small, std::int64_t big);
  void add(double small_squared_norm, double big_squared_norm);
  std::int64_t steps() const { return scale_ ? scale_->steps() : 0; }
  double value() const;           // NoiseScale's, of the last steps; NaN before the first
  double critical_batch() const;  // CriticalBatch's, of all steps so far

 private:
  std::optional<NoiseScale> scale_;
  std::optional<CriticalBatch> critical_;
};

// Samples that one worker needs to a quality, over those that `workers` need, each with `batch` samples a step:
// (1 + b / B_c) / (1 + P b / B_c).
double statistical_efficiency(double batch, double workers, double critical_batch);

}  // namespace mpigrad
