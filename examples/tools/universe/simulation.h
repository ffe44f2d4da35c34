#pragma once
// One simulated universe, from its parameters to CosmoFlow's file.

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "examples/tools/universe/field.h"

namespace mpigrad::universe {

inline constexpr std::array<double, 4> redshifts{3, 1.5, 0.5, 0};  // the channels
inline constexpr std::array<const char*, 4> parameter_names{"Omega_m", "sigma_8", "N_spec", "H_0"};

struct Simulation {
  std::int64_t size = 32;  // cells per side
  double cell = 4;         // Mpc/h
  std::uint64_t seed = 0;
  Spectrum spectrum = Spectrum::eh;
  int order = 2;  // order of the displacement
};

struct Universe {
  std::uint64_t index = 0;
  Draw draw;
  Field<std::int16_t> counts;  // this rank's slab: [x in x_range(), y, z, redshift]
  std::int64_t largest = 0;    // largest count on this rank
};

// Collective over the transport of `fft`, whose n is the simulation's size.
Universe simulate(const SlabFft& fft, const Simulation& simulation, std::uint64_t index);

// "universe_00012.hdf5"
std::string file_name(std::uint64_t index);

// CosmoFlow's layout: `full` int16 [N, N, N, 4], `unitPar` and `physPar` float32 [4], `namePar` text [4], `redshifts` float32
// [4]; and, as attributes of the file, the settings of the simulation. Collective.
void write_universe(const std::filesystem::path& path, bool overwrite, const SlabFft& fft, const Simulation& simulation,
                    const Universe& universe);

}  // namespace mpigrad::universe
