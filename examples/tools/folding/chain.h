#pragma once
// Chains of C-alpha atoms that fold and unfold: a structure-based ("Go") model with Langevin dynamics. Lengths in Angstrom;
// masses and the depth of a native contact are 1, and so is Boltzmann's constant.

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor/random.h"

namespace mpigrad::folding {

using Position = std::array<double, 3>;

inline constexpr double contact_distance = 8;  // below it two residues are in contact

// The structure of least energy.
struct Native {
  std::vector<Position> positions;                              // one for each residue
  std::vector<std::pair<std::size_t, std::size_t>> contacts{};  // pairs i, j >= i + 3 of residues in contact
};
// "hairpin" and "sheet": two and three antiparallel strands, 5 apart, joined by turns of three residues. Made of ideal strands;
// no protein has it. Errors: another name, fewer than 8 residues for each strand.
Native native_structure(const std::string& name, std::int64_t residues);

struct Simulation {
  std::string structure = "hairpin";
  std::int64_t residues = 21, frames = 500, steps_per_frame = 400;
  double temperature = 0.68, time_step = 0.02, friction = 0.2;
};

// The frames of one chain.
struct Frames {
  std::vector<std::uint8_t> maps;  // [frames, residues, residues]: 1 for a contact, so also on the diagonal
  std::vector<float> native;       // [frames]: the fraction of the native contacts that exist
};

// The energy of a chain, and its gradient:
//
//   bonds i, i + 1      50 (r - 3.8)^2
//   i, i + 2            10 (r - r0)^2, with the native distance r0
//   native contacts     w (5 (r0 / r)^12 - 6 (r0 / r)^10) (Clementi, Nymeyer and Onuchic 2000)
//   other pairs         (4 / r)^12
//
// w is 1, and 0.3 if j < i + 6: a turn that holds together only with its strands makes the chain fold in one event. The values
// and w are ours. There are no dihedral angles, so a chain also folds to the mirror image, which has the same contacts.
class Energy {
 public:
  explicit Energy(const Native& native);
  double operator()(const std::vector<Position>& x, std::vector<Position>& gradient) const;

 private:
  std::size_t residues_;
  std::vector<double> native_distance_;  // [residues, residues]; 0: no native contact
};

// Langevin dynamics by the splitting BAOAB (Leimkuhler and Matthews 2013), from a random coil. The first frames / 10 frames are
// left out. The result depends only on the arguments. Errors: a number that is not positive, a chain that flies apart.
Frames simulate(const Simulation& simulation, const Philox& random);

}  // namespace mpigrad::folding
