#include "models/data/volumes/orientation.h"

#include <algorithm>
#include <cmath>

namespace mpigrad::data {

std::string orientation_of(const VolumeHeader& header) {
  if (!header.placed) return {};
  // The direction cosines of each axis of the file along x, y, z.
  std::array<std::array<double, 3>, 3> parts{};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    double length = 0;
    for (std::size_t row = 0; row < 3; ++row) length = std::hypot(length, parts[axis][row] = header.affine[4 * row + axis]);
    if (!(length > 0)) return {};
    for (auto& part : parts[axis]) part /= length;
  }
  std::array<std::size_t, 3> order{0, 1, 2}, best = order;
  double most = -1;
  do {
    double sum = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) sum += std::abs(parts[axis][order[axis]]);
    if (sum > most + 1e-9) most = sum, best = order;
  } while (std::next_permutation(order.begin(), order.end()));
  std::string letters;
  for (std::size_t axis = 0; axis < 3; ++axis) letters += (parts[axis][best[axis]] < 0 ? "LPI" : "RAS")[best[axis]];
  return letters;
}

}  // namespace mpigrad::data
