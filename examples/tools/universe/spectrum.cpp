#include "examples/tools/universe/spectrum.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"

namespace mpigrad::universe {
namespace {

constexpr std::int64_t most_bins = 17;
// Least power of a bin relative to white noise of the same variance: rounding in the transforms leaves about 1e-31.
constexpr double least_power = 1e-24;
// Least variance of a contrast that varies by more than the rounding of its mean.
constexpr double least_variance = 1e-20;

// Modes that the transform stores without their conjugate count twice.
double stored_once(const SlabFft& fft, std::int64_t kz) { return kz == 0 || fft.is_nyquist(kz) ? 1 : 2; }

}  // namespace

std::vector<double> spectrum_edges(std::int64_t n) {
  const auto half = n / 2, bins = std::min(half, most_bins);
  std::vector<double> edges;
  for (std::int64_t i = 0; i <= bins; ++i)
    edges.push_back(0.5 + static_cast<double>(i) + static_cast<double>((half - bins) * i * i) / static_cast<double>(bins * bins));
  return edges;
}

VolumeStatistics::VolumeStatistics(std::shared_ptr<Transport> alone, std::int64_t n) : fft_(std::move(alone), n) {
  require(fft_.transport().size() == 1, "[spectrum] a volume must be on one rank, the transport has {}", fft_.transport().size());
  const auto edges = spectrum_edges(n);
  modes_.resize(edges.size() - 1), bin_.resize(fft_.complex_size());
  fft_.for_each_mode([&](std::size_t offset, std::int64_t kx, std::int64_t ky, std::int64_t kz) {
    const double k = std::sqrt(static_cast<double>(kx * kx + ky * ky + kz * kz));
    const auto above = std::upper_bound(edges.begin(), edges.end(), k) - edges.begin();
    const auto bin = above == 0 || k >= edges.back() ? modes_.size() : static_cast<std::size_t>(above - 1);
    bin_[offset] = static_cast<std::uint8_t>(bin);
    if (bin < modes_.size()) modes_[bin] += stored_once(fft_, kz);
  });
}

std::vector<double> VolumeStatistics::operator()(std::span<const double> counts, std::int64_t channels) const {
  const auto cells = fft_.real_size(), stride = static_cast<std::size_t>(channels);
  require(channels > 0 && counts.size() == cells * stride, "[spectrum] {} numbers are not {}^3 cells of {} channels",
          counts.size(), fft_.n(), channels);
  const auto total = static_cast<double>(cells);
  std::vector<double> statistics, power(modes_.size() + 1), means(stride), zeros(stride);
  for (std::size_t i = 0; i < counts.size(); i += stride)
    for (std::size_t c = 0; c < stride; ++c) means[c] += counts[i + c], zeros[c] += counts[i + c] == 0 ? 1 : 0;
  RealField contrast(cells);
  for (std::size_t c = 0; c < stride; ++c) {
    const double mean = means[c] > 0 ? means[c] / total : std::nan("");
    double squares = 0, cubes = 0;
    for (std::size_t i = 0; i < cells; ++i) {
      const double d = counts[i * stride + c] / mean - 1;
      contrast[i] = d, squares += d * d, cubes += d * d * d;
    }
    const double variance = squares / total;
    const auto modes = fft_.forward(contrast);
    std::fill(power.begin(), power.end(), 0);
    const auto half = fft_.half();
    for (std::size_t m = 0; m < modes.size();)
      for (std::int64_t kz = 0; kz < half; ++kz, ++m) power[bin_[m]] += stored_once(fft_, kz) * std::norm(modes[m]);
    for (std::size_t b = 0; b < modes_.size(); ++b) {
      const double mean_power = power[b] / modes_[b] / total;
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
