#pragma once
// Lagrangian perturbation theory: displacements of the cells of a uniform universe.

#include <array>
#include <cstdint>
#include <string_view>

#include "examples/tools/universe/fft.h"

namespace mpigrad::universe {

// psi_j(x) for j = x, y, z on this rank's cells, in units of the box.
using Displacement = std::array<RealField, 3>;

// First order (Zel'dovich 1970): psi = -grad phi, lap phi = delta, that is psi(k) = i k / k^2 delta(k). Modes at the Nyquist
// frequency of any axis are zeroed. delta: density contrast in Fourier space. Collective.
Displacement first_order(const SlabFft& fft, const ComplexField& delta);

// Second order (Bouchet et al. 1995): psi2 = -(3/7) grad phi2, lap phi2 = sum_{i<j} (phi,ii phi,jj - phi,ij^2), products taken on
// 3/2 as many cells per side, so that none of their modes is aliased. At growth D = D(z) / D(0), x = q + D psi + D^2 psi2.
// Collective.
Displacement second_order(const SlabFft& fft, const ComplexField& delta);

// The source sum_{i<j} (phi,ii phi,jj - phi,ij^2) of phi2 in Fourier space, truncated to the modes of `fft`. Collective.
ComplexField second_order_source(const SlabFft& fft, const ComplexField& delta);

// An Error that begins with `what` if this rank's memory cannot hold the fields of n^3 cells up to that order.
void require_field_memory(std::string_view what, std::int64_t n, int ranks, int order);

}  // namespace mpigrad::universe
