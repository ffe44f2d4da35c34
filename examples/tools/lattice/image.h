#pragma once
// Images of two-dimensional lattices of atoms, as a microscope sees them. Simulated, not recorded.

#include <array>
#include <cstdint>
#include <span>

#include "framework/tensor/random.h"

namespace mpigrad::lattice {

inline constexpr std::int64_t rows = 85, columns = 120;  // pixels

// The structure of a lattice. Classes and values are ours.
struct Structure {
  double spacing = 10;  // a, in pixels
  double ratio = 1;     // b / a
  double angle = 90;    // between a and b, in degrees
  int motif = 0;        // 0: one atom in a cell; 1: a dimmer one in the middle of the cell; 2: a dimmer one in the middle of a
};
inline constexpr std::array<double, 3> ratios{1, 1.25, 1.55}, angles{90, 75, 60};
inline constexpr std::int64_t classes = 27;  // 9 * (place of the ratio) + 3 * (place of the angle) + motif

// A structure of the class with a random spacing from 8 to 12 pixels.
Structure structure_of_class(std::int64_t number, const Philox& random);
// One atom in a cell; random spacing from 8 to 12, ratio from 1 to 1.6, angle from 60 to 90 degrees.
Structure random_structure(const Philox& random);

// Writes [rows, columns] bytes: the lattice with a random rotation and shift, atoms displaced by 3 % of the spacing, of width
// 1.4 pixels, and noise of a quarter of an atom's brightness.
void draw(const Structure& structure, const Philox& random, std::span<std::uint8_t> pixels);

}  // namespace mpigrad::lattice
