#include "models/data/volumes/volume.h"

#include <algorithm>
#include <cmath>

namespace mpigrad::data {
namespace {

// The place of the cell [z, y, x], in millimetres.
std::array<double, 3> position(const VolumeHeader& header, const Shape& cell) {
  std::array<double, 3> result{};
  for (std::size_t row = 0; row < 3; ++row) {
    const auto* r = header.affine.data() + 4 * row;
    result[row] =
        r[0] * static_cast<double>(cell[2]) + r[1] * static_cast<double>(cell[1]) + r[2] * static_cast<double>(cell[0]) + r[3];
  }
  return result;
}

std::string text_of(const std::array<double, 3>& values) {
  return fmt::format("[{:.6g}, {:.6g}, {:.6g}]", values[0], values[1], values[2]);
}

}  // namespace

std::string difference(const VolumeHeader& a, const VolumeHeader& b) {
  constexpr double part_of_cell = 0.01;
  if (a.extents != b.extents) return fmt::format("extents {} and {}", a.extents, b.extents);
  double least = a.spacing[0];
  for (const auto* header : {&a, &b}) least = std::min(least, *std::min_element(header->spacing.begin(), header->spacing.end()));
  for (std::size_t i = 0; i < 3; ++i)
    if (!(std::abs(a.spacing[i] - b.spacing[i]) <= part_of_cell * std::min(a.spacing[i], b.spacing[i])))
      return fmt::format("spacing {} and {} mm [z, y, x]", text_of(a.spacing), text_of(b.spacing));
  // The distance is convex over the cells, so it is largest at a corner.
  double farthest = part_of_cell * least;
  std::string result;
  for (int corner = 0; corner < 8; ++corner) {
    Shape cell{0, 0, 0};
    for (int i = 0; i < 3; ++i)
      if ((corner >> (2 - i) & 1) != 0) cell[i] = a.extents[i] - 1;
    const auto p = position(a, cell), q = position(b, cell);
    const double distance = std::hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]);
    // A corner counts as farther only if the distance grows by more than rounding.
    if (distance <= farthest * (result.empty() ? 1 : 1 + 1e-6)) continue;
    farthest = distance;
    result = fmt::format("places: cell {} [z, y, x] lies at {} and {} mm [x, y, z], {:.3g} mm apart", cell, text_of(p),
                         text_of(q), distance);
  }
  return result;
}

VolumeHeader plain_volume_header(const Shape& extents, const std::array<double, 3>& spacing) {
  VolumeHeader header;
  header.extents = extents, header.spacing = spacing, header.placed = true;
  for (std::size_t a = 0; a < 3; ++a) header.affine[4 * a + a] = spacing[2 - a];
  return header;
}

}  // namespace mpigrad::data
