#pragma once
// Images of crystals as in an electron microscope: atoms of a lattice, one of which may be missing or added, and dislocations.
// Simulated, not recorded.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/tensor/random.h"

namespace mpigrad::scaling {

inline constexpr std::int64_t lattice_side = 24;  // pixels

enum class Defect : std::uint8_t {
  none,
  vacancy,       // an atom is missing
  interstitial,  // an atom between the others
  dislocation,   // an additional half row of atoms ends in the image
};
inline constexpr std::array<const char*, 4> defect_names{"none", "vacancy", "interstitial", "dislocation"};

// Positions in pixels from the image's upper left corner; some of them outside.
struct Crystal {
  struct Atom {
    double x = 0, y = 0;
  };
  Defect defect = Defect::none;
  std::vector<Atom> atoms{};
};
// A square or triangular lattice with a random shift, spacing and rotation, and a random defect in its middle part. Depends only
// on `random`.
Crystal make_crystal(const Philox& random);

struct Exposure {
  double jitter = 0.18;  // of atoms, in pixels: thermal
  double noise = 0.3;    // of pixels; an atom's brightness is 3
  int turn = 0;          // quarters, counter-clockwise
  bool mirrored = false;
};
// Writes [lattice_side, lattice_side] pixels, of about mean 0 and variance 0.6.
void expose(const Crystal& crystal, const Exposure& exposure, const Philox& random, std::span<float> pixels);

}  // namespace mpigrad::scaling
