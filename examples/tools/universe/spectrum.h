#pragma once
// Statistics of volumes of counts from which parameters are estimated without a network: binned power spectra and one-point
// statistics.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "examples/tools/universe/fft.h"

namespace mpigrad::universe {

// Edges of the bins of |k| in units of the fundamental frequency, from 0.5 to half + 0.5 with half = n / 2 rounded down: half
// bins of width 1, or 17 bins that widen towards large |k| if there would be more. Every bin contains an axis' mode.
std::vector<double> spectrum_edges(std::int64_t n);

// For volumes of n^3 cells, each on one rank. Error: sizes that SlabFft does not transform.
class VolumeStatistics {
 public:
  // `alone`: a transport of one rank.
  VolumeStatistics(std::shared_ptr<Transport> alone, std::int64_t n);

  // The number of values for each channel: one for each bin and three more.
  std::int64_t per_channel() const { return static_cast<std::int64_t>(modes_.size()) + 3; }
  // counts: [n, n, n, channels], row-major. With the contrast d = count / mean - 1 of a channel, the values are, in this order:
  // the logarithm of the mean of |F(k)|^2 / n^3 over the modes of each bin, where F is the Fourier sum of d, with the
  // assignment's window left in; the logarithm of the variance of d; its skewness <d^3> / variance^1.5; log(1e-9 + the fraction
  // of cells that are 0). At least one value of a channel is not finite if the channel has no spectrum: its mean is not positive,
  // or a bin has no power beyond rounding. Thread-safe.
  std::vector<double> operator()(std::span<const double> counts, std::int64_t channels) const;

 private:
  SlabFft fft_;
  std::vector<std::uint8_t> bin_;  // the bin of each mode of the transform; the number of bins: in no bin
  std::vector<double> modes_;      // number of modes in each bin; a mode whose conjugate is not stored counts twice
};

}  // namespace mpigrad::universe
