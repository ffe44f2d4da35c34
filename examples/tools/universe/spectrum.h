#pragma once
// Statistics of volumes of counts from which parameters are estimated without a network: binned power spectra and one-point
// numbers.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "examples/tools/universe/fft.h"

namespace mpigrad::universe {

// Edges of the bins of |k| in units of the fundamental frequency, from 0.5 to half + 0.5 with half = n / 2 rounded down: half
// bins of width 1, but 17 that widen towards large |k| where there would be more. Every bin holds an axis' mode.
std::vector<double> spectrum_edges(std::int64_t n);

// Volumes of n^3 cells, each of them on one rank; a transform of other sizes than those of SlabFft is an Error.
class VolumeStatistics {
 public:
  // `alone`: a transport of one rank.
  VolumeStatistics(std::shared_ptr<Transport> alone, std::int64_t n);

  // Numbers for each channel: one for each bin and three more.
  std::int64_t per_channel() const { return static_cast<std::int64_t>(modes_.size()) + 3; }
  // counts: [n, n, n, channels], row-major. With the contrast d = count / mean - 1 of a channel, in this order: the logarithm of
  // the mean of |F(k)|^2 / n^3 over the modes of each bin, F the Fourier sum of d, the assignment's window left in; the logarithm
  // of the variance of d; its skewness <d^3> / variance^1.5; log(1e-9 + the part of the cells that are 0). Some number of a
  // channel is not finite where that has no spectrum: its mean is not positive, or a bin has no power beyond rounding. Several
  // threads may call it.
  std::vector<double> operator()(std::span<const double> counts, std::int64_t channels) const;

 private:
  SlabFft fft_;
  std::vector<std::uint8_t> bin_;  // of each mode of the transform; as many as there are bins: of none
  std::vector<double> modes_;      // in each bin; a mode whose conjugate is not stored counts twice
};

}  // namespace mpigrad::universe
