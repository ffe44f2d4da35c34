#include "models/train/workers/noise_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/base/error.h"

namespace mpigrad {

NoiseScale::NoiseScale(std::int64_t small, std::int64_t big, double decay)
    : small_(static_cast<double>(small)), big_(static_cast<double>(big)), decay_(decay) {
  require(small > 0 && small < big, "[noise scale] gradients of two batch sizes are needed, got {} and {}", small, big);
  require(decay >= 0 && decay < 1, "[noise scale] decay is in [0, 1), got {}", decay);
}

void NoiseScale::add(double small_squared_norm, double big_squared_norm) {
  if (!std::isfinite(small_squared_norm) || !std::isfinite(big_squared_norm)) return;
  const double gradient = (big_ * big_squared_norm - small_ * small_squared_norm) / (big_ - small_);
  const double variance = (small_squared_norm - big_squared_norm) / (1 / small_ - 1 / big_);
  gradient_ = decay_ * gradient_ + (1 - decay_) * gradient;
  variance_ = decay_ * variance_ + (1 - decay_) * variance;
  weight_ = decay_ * weight_ + (1 - decay_);
  ++steps_;
}

double NoiseScale::variance() const { return steps_ == 0 ? std::nan("") : variance_ / weight_; }
double NoiseScale::squared_gradient() const { return steps_ == 0 ? std::nan("") : gradient_ / weight_; }

double NoiseScale::value() const {
  if (steps_ > 0 && gradient_ <= 0) return std::numeric_limits<double>::infinity();
  return variance() / squared_gradient();
}

void CriticalBatch::add(double noise_scale) {
  if (std::isnan(noise_scale)) return;
  any_ = true;
  const double noise = std::max(noise_scale, 0.0);
  // progress * noise, whose limit for large noise is the batch.
  sum_ += std::isinf(noise) ? batch_ : noise / (1 + noise / batch_);
  weight_ += 1 / (1 + noise / batch_);
}

double CriticalBatch::value() const { return any_ ? sum_ / weight_ : std::nan(""); }

void GradientNoise::begin(std::int64_t small, std::int64_t big) {
  if (scale_) return;  // a resumed training
  scale_.emplace(small, big);
  critical_.emplace(big);
}
void GradientNoise::add(double small_squared_norm, double big_squared_norm) {
  scale_->add(small_squared_norm, big_squared_norm);
  critical_->add(scale_->value());
}
double GradientNoise::value() const { return scale_ ? scale_->value() : std::nan(""); }
double GradientNoise::critical_batch() const { return critical_ ? critical_->value() : std::nan(""); }

double statistical_efficiency(double batch, double workers, double critical_batch) {
  return (1 + batch / critical_batch) / (1 + batch * workers / critical_batch);
}

}  // namespace mpigrad
