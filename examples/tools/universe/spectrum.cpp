#include "examples/tools/universe/spectrum.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/base/error.h"
#include "framework/engine/tape.h"

namespace mpigrad::universe {
namespace {

constexpr std::int64_t most_bins = 17;
// Least power of a bin relative to white noise of the same variance: rounding in the transforms leaves about 1e-31.
constexpr double least_power = 1e-24;
// Least variance of a contrast that varies by more than the rounding of its mean.
constexpr double least_variance = 1e-20;

}  // namespace

std::vector<double> spectrum_edges(std::int64_t n) {
  const auto half = n / 2, bins = std::min(half, most_bins);
  std::vector<double> edges;
  for (std::int64_t i = 0; i <= bins; ++i)
    edges.push_back(0.5 + static_cast<double>(i) + static_cast<double>((half - bins) * i * i) / static_cast<double>(bins * bins));
  return edges;
}

VolumeStatistics::VolumeStatistics(std::int64_t n) : n_(n) {
  const double spacing = 2 * std::numbers::pi / static_cast<double>(n);  // the fundamental wave number is 1
  options_ = {.spacing = {spacing, spacing, spacing}, .edges = spectrum_edges(n)};
}

std::vector<double> VolumeStatistics::operator()(std::span<const double> counts, std::int64_t channels) const {
  const auto cells = static_cast<std::size_t>(n_ * n_ * n_), stride = static_cast<std::size_t>(channels);
  require(channels > 0 && counts.size() == cells * stride, "[spectrum] {} numbers are not {}^3 cells of {} channels",
          counts.size(), n_, channels);
  const Untaped scope;
  const UseDevice device(DeviceKind::cpu);
  const auto total = static_cast<double>(cells), h = options_.spacing[0];
  std::vector<double> statistics, means(stride), zeros(stride);
  for (std::size_t i = 0; i < counts.size(); i += stride)
    for (std::size_t c = 0; c < stride; ++c) means[c] += counts[i + c], zeros[c] += counts[i + c] == 0 ? 1 : 0;
  std::vector<double> contrasts(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t c = i % stride;
    contrasts[i] = counts[i] / (means[c] > 0 ? means[c] / total : std::nan("")) - 1;
  }
  const Tensor field = Tensor::over(contrasts.data(), {1, n_, n_, n_, channels}, DType::float64);
  const auto power = fields::power_spectrum(field, options_).power.to_vector();  // [bins, channels]
  for (std::size_t c = 0; c < stride; ++c) {
    double squares = 0, cubes = 0;
    for (std::size_t i = c; i < contrasts.size(); i += stride)
      squares += contrasts[i] * contrasts[i], cubes += contrasts[i] * contrasts[i] * contrasts[i];
    const double variance = squares / total;
    for (std::size_t b = c; b < power.size(); b += stride) {
      const double mean_power = power[b] / (h * h * h);
      const bool some = variance > least_variance && mean_power > least_power * variance;
      statistics.push_back(some ? std::log(mean_power) : std::nan(""));
    }
    statistics.push_back(std::log(variance));
    statistics.push_back(cubes / total / std::pow(variance, 1.5));
    statistics.push_back(std::log(1e-9 + zeros[c] / total));
  }
  return statistics;
}

}  // namespace mpigrad::universe
