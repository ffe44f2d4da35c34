#pragma once
// The cosmology of the tables that universes are compared with.

#include "examples/tools/universe/cosmology.h"

namespace mpigrad::universe {

inline constexpr Cosmology reference{.omega_m = 0.30, .sigma_8 = 0.8, .spectral_index = 0.96, .hubble = 70, .omega_b = 0.05};

}  // namespace mpigrad::universe
