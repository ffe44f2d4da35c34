// The letters of all 48 ways to store a volume, straight and oblique.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/data/volumes/orientation.h"

using namespace mpigrad;
using namespace mpigrad::data;

namespace {

// Axes of lengths 0.5, 1 and 3 mm along the rows `order`, then rotated by an angle about (1, 1, 1).
VolumeHeader header_of(const std::array<std::size_t, 3>& order, const std::array<int, 3>& signs, double angle,
                       bool placed = true) {
  VolumeHeader header;
  header.placed = placed;
  const double along = (1 + 2 * std::cos(angle)) / 3, s = std::sin(angle) / std::sqrt(3.0), across = (1 - std::cos(angle)) / 3;
  const double rotation[3][3]{{along, across - s, across + s}, {across + s, along, across - s}, {across - s, across + s, along}};
  const double lengths[3]{0.5, 1, 3};
  for (std::size_t axis = 0; axis < 3; ++axis)
    for (std::size_t row = 0; row < 3; ++row)
      header.affine[4 * row + axis] = rotation[row][order[axis]] * signs[axis] * lengths[axis];
  return header;
}

}  // namespace

TEST_CASE("orientation: all ways to store a volume have their letters, oblique ones those of the nearest axes") {
  std::array<std::size_t, 3> order{0, 1, 2};
  int seen = 0;
  do {
    for (int flips = 0; flips < 8; ++flips) {
      std::array<int, 3> signs{};
      std::string expected;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        signs[axis] = (flips >> axis & 1) != 0 ? -1 : 1;
        expected += (signs[axis] < 0 ? "LPI" : "RAS")[order[axis]];
      }
      for (const double angle : {0.0, 0.3, -0.5}) CHECK(orientation_of(header_of(order, signs, angle)) == expected);
      ++seen;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(seen == 48);
}

TEST_CASE("orientation: files that say none have none") {
  CHECK(orientation_of(header_of({0, 1, 2}, {1, 1, 1}, 0, false)).empty());
  auto flat = header_of({0, 1, 2}, {1, 1, 1}, 0);
  flat.affine[5] = 0;
  CHECK(orientation_of(flat).empty());
  CHECK(orientation_of(plain_volume_header({2, 3, 4})) == orientation_of(plain_volume_header({5, 6, 7}, {1, 2, 3})));
  CHECK(orientation_of(VolumeHeader{}).empty());
}
