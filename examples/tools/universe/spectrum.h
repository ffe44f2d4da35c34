#pragma once
// Statistics of volumes of counts from which parameters are estimated without a network: binned power spectra and one-point
// statistics.

#include <cstdint>
#include <span>
#include <vector>

#include "models/simulation/power_spectrum.h"

namespace mpigrad::universe {

// Edges of the bins of |k| in units of the fundamental frequency, from 0.5 to half + 0.5 with half = n / 2 rounded down: half
// bins of width 1, or 17 bins that widen towards large |k| if there would be more. Every bin contains an axis' mode.
std::vector<double> spectrum_edges(std::int64_t n);

// For volumes of n^3 cells.
class VolumeStatistics {
 public:
  explicit VolumeStatistics(std::int64_t n);

  // The number of values for each channel: one for each bin and three more.
  std::int64_t per_channel() const { return static_cast<std::int64_t>(options_.edges.size()) + 2; }
  // counts: [n, n, n, channels], row-major. With the contrast d = count / mean - 1 of a channel, the values are, in this order:
  // the logarithm of the mean of |F(k)|^2 / n^3 over the modes of each bin, where F is the Fourier sum of d, with the
  // assignment's window left in; the logarithm of the variance of d; its skewness <d^3> / variance^1.5; log(1e-9 + the fraction
  // of cells that are 0). At least one value of a channel is not finite if the channel has no spectrum: its mean is not positive,
  // or a bin has no power beyond rounding. Thread-safe.
  std::vector<double> operator()(std::span<const double> counts, std::int64_t channels) const;

 private:
  std::int64_t n_;
  fields::SpectrumOptions options_;
};

}  // namespace mpigrad::universe
