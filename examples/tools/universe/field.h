#pragma once
// Gaussian random fields with a given power spectrum.

#include <array>
#include <cstdint>
#include <functional>

#include "examples/tools/universe/cosmology.h"
#include "examples/tools/universe/fft.h"

namespace mpigrad::universe {

// White noise of variance 1 on this rank's cells, [x in x_range(), y, z]; depends only on (seed, universe, global cell).
RealField white_noise(const SlabFft& fft, std::uint64_t seed, std::uint64_t universe);

// Density contrast today in Fourier space (SlabFft's layout and normalisation) on cells of `cell` Mpc/h, with mean 0 and
// < |delta(k)|^2 > = n^6 / V * P(|k|), V = (n cell)^3. power: (Mpc/h)^3 as a function of k in h/Mpc. Collective.
ComplexField gaussian_field(const SlabFft& fft, const std::function<double(double)>& power, double cell, std::uint64_t seed,
                            std::uint64_t universe);

// The i-th universe's parameters: (Omega_m, sigma_8, n_s, H_0) = (1 + 0.1 u) * (0.30, 0.80, 0.96, 70), u uniform in [-1, 1],
// Omega_b = 0.045 (CosmoFlow's ranges); they depend only on (seed, universe).
struct Draw {
  std::array<float, 4> unit{};      // u
  std::array<float, 4> physical{};  // Omega_m, sigma_8, n_s, H_0
  Cosmology cosmology;
};
Draw draw_parameters(std::uint64_t seed, std::uint64_t universe);

}  // namespace mpigrad::universe
