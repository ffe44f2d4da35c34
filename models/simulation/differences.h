#pragma once
// Boundaries and orders of differences (models/simulation/fields.h).

#include <array>
#include <cstdint>
#include <vector>

namespace mpigrad::fields {

// The two ends of a dimension. Walls lie half a spacing outside of the first and last points. Across a wall the field continues
//   dirichlet   as an odd function: it is 0 on the wall
//   neumann     as an even function: its derivative across the wall is 0 there
// The order of a difference needs a smooth continuation. Others, such as that of a field whose second derivative is not 0 on a
// Dirichlet wall, have larger errors next to the wall; then solutions of poisson() are of order 2.
enum class Boundary : std::uint8_t { periodic, dirichlet, neumann };

inline constexpr int spectral = 0;  // an order: derivatives of the Fourier series, of sines or cosines between walls

struct DifferenceOptions {
  std::array<double, 3> spacing = {1, 1, 1};  // of the points along D, H and W
  int order = 2;                              // of the error in the spacing: 2, 4, 6, 8 or `spectral`
  std::array<Boundary, 3> boundary{};         // along D, H and W; by default periodic
};

// The weights of central differences for unit spacing, at -m ... m with m = order / 2, of the first or second derivative
// (B. Fornberg, Math. Comp. 51, 1988). Errors: another order or derivative.
std::vector<double> difference_weights(int derivative, int order);

}  // namespace mpigrad::fields
