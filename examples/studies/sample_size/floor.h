#pragma once
// The smallest possible error of parameters estimated from a Gaussian field in a cube of a given volume (Fisher information).

#include <array>
#include <cstdint>
#include <span>

#include "examples/tools/universe/cosmology.h"
#include "examples/tools/universe/simulation.h"

namespace mpigrad::sample_size {

using Matrix4 = std::array<std::array<double, 4>, 4>;

// u in [-1, 1] of (Omega_m, sigma_8, n_s, H_0) = (1 + 0.1 u) * (0.30, 0.80, 0.96, 70), Omega_b fixed; its prior is uniform.
inline constexpr double prior_variance = 1.0 / 3;
universe::Cosmology cosmology_of(const std::array<double, 4>& u);

// The observation: counts of particles in the cells of a periodic cube, at several redshifts of one universe.
struct GaussianField {
  std::int64_t cells_per_side = 0;
  double cell = 4;  // Mpc/h
  std::span<const double> redshifts = universe::redshifts;
  double particles_per_cell = 1;  // infinity: no shot noise, for one redshift only
  bool window = true;             // window of counting in the nearest cell
  universe::Spectrum spectrum = universe::Spectrum::eh;
};

// F_ab = sum over modes of 1/2 tr(C^-1 C,a C^-1 C,b), derivatives by u at u = 0. The modes are the cells_per_side^3 - 1 real ones
// of a cube with a periodic boundary (real and imaginary part of k, shared with -k), k_i = 2 pi n_i / L up to Nyquist's on every
// axis. Between the redshifts i and j a mode has the covariance
//   C_ij = D_i D_j P(k) W(k)^2 + delta_ij N,   W = prod_i sin(x_i) / x_i, x_i = k_i cell / 2,   N = cell^3 / particles_per_cell,
// with the growth D_i = D(z_i) / D(0) and P(k) today, both functions of the parameters. Modes are grouped by sorted |n_i|, and
// P(k) is evaluated once for each |n|^2: there are no bins.
Matrix4 fisher_information(const GaussianField& field);

// The diagonal of (F + 1 / prior_variance)^-1, each as a fraction of the prior's variance: in (0, 1].
std::array<double, 4> posterior_fraction(const Matrix4& fisher);

// Both functions above, with the window. It is the floor for a Gaussian field, not for every estimator on our universes:
// - our universes are displaced to second order, so that counts in cells of 4 Mpc/h are not Gaussian and hold further
//   information; and a network that has learned from few samples stays above any floor;
// - the redshifts share one initial field: apart from noise their channels differ only by growth, which is why several of them
//   say so much about Omega_m. Shot noise is taken as Poisson's; particles that start from a grid have less of it;
// - a cube cut from a larger box has no periodic boundary and its own mean density; and power from beyond Nyquist's frequencies,
//   which counting aliases, is ignored;
// - the prior is taken as a Gaussian of its variance; with the uniform prior the best prediction is up to 8 % better (for one
//   parameter, if the fraction is near 0.1).
std::array<double, 4> floor_variance(std::int64_t cells_per_side, double cell,
                                     std::span<const double> redshifts = universe::redshifts, double particles_per_cell = 1,
                                     universe::Spectrum spectrum = universe::Spectrum::eh);

}  // namespace mpigrad::sample_size
