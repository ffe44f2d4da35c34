#pragma once
// Power spectra of fields, binned by wave number.

#include <array>
#include <vector>

#include "framework/engine/op.h"

namespace mpigrad::fields {

struct SpectrumOptions {
  std::array<double, 3> spacing = {1, 1, 1};  // of the points along D, H and W
  // Ascending edges of the bins [edges[i], edges[i + 1]) of |k|, in radians per length. None: bins of the width of the largest
  // fundamental wave number 2 pi / side, around its multiples up to the smallest of the Nyquist wave numbers pi / spacing.
  std::vector<double> edges{};
  // The order p of the kernel that assigned particles to the mesh: 1 nearest point, 2 cloud in cell, 3 triangular-shaped cloud,
  // 4 piecewise cubic; 0: none. The power is divided by W^2, W(k) = product over i of (sin(k_i h_i / 2) / (k_i h_i / 2))^p.
  int window = 0;
  // Divides by the sum of W^2 over all wave numbers with the alias k instead of by W^2. This is exact for a spectrum that is
  // constant beyond the Nyquist wave number, where W^2 would amplify the aliases.
  bool aliases = false;
  // The volume divided by the number of particles of equal mass: their shot noise, which is subtracted as the kernel and the
  // aliases leave it.
  double shot_noise = 0;
};

struct PowerSpectrum {
  Tensor k;      // [bins] the mean |k| of each bin, a constant float64
  Tensor power;  // [N, bins, C] in units of length^3
  Tensor modes;  // [bins] the number of modes k and -k in each bin, a constant float64
};

// The power spectrum of each channel of a real field [N, D, H, W, C], plain or distributed, in a periodic box of volume V: the
// mean over a bin of V |F(k)|^2 / M^2, where F is the Fourier sum over the M points. The mode k = 0 is in no bin. For the density
// contrast of particles this is the estimator of Y. P. Jing (ApJ 620, 559, 2005), whose equation 20 has the sums over aliases.
//
// The result is replicated over the ranks that split a volume; samples and channels stay split. It is equal to rounding on any
// number of ranks. Compositions of ops: derivatives of any order. Errors: those of rfft() (comm/fft/fft.h); edges that do not
// ascend; a bin without modes; a window that is not 0 to 4.
PowerSpectrum power_spectrum(const Tensor& x, const SpectrumOptions& options = {});

}  // namespace mpigrad::fields
