#include "models/data/volumes/orientation.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"

namespace mpigrad::data {
namespace {

// The letters of the two directions of the axes x, y, z.
constexpr const char *forwards = "RAS", *backwards = "LPI";

// 0, 1 or 2 for x, y, z; 3: no letter of a direction.
std::size_t axis_of(char letter) {
  std::size_t axis = 0;
  while (axis < 3 && forwards[axis] != letter && backwards[axis] != letter) ++axis;
  return axis;
}

// The direction cosines of each axis of the file along x, y, z. False: an axis has no length.
bool cosines(const VolumeHeader& header, std::array<std::array<double, 3>, 3>& parts) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    double length = 0;
    for (std::size_t row = 0; row < 3; ++row) length = std::hypot(length, parts[axis][row] = header.affine[4 * row + axis]);
    if (!(length > 0)) return false;
    for (auto& part : parts[axis]) part /= length;
  }
  return true;
}

template <class T>
std::vector<T> turned_cells(std::vector<T> cells, DType type, const Shape& extents, std::int64_t channels,
                            const Augmentation& turn) {
  if (!turns(turn)) return cells;
  Shape to{1, 1, 1};
  for (int a = 0; a < 3; ++a) to[a] = extents[turn.axes[static_cast<std::size_t>(a)]];
  std::vector<T> result(cells.size());
  const Stored stored{{Shape{0, 0, 0}, extents}, type, cells.data()};
  for (const auto& piece : pieces_of({Shape{0, 0, 0}, to}, extents, turn))
    copy_piece(piece, stored, to, channels, Transform::none, type, result.data(), [] { return std::string(); });
  return result;
}

}  // namespace

std::string orientation_of(const VolumeHeader& header) {
  std::array<std::array<double, 3>, 3> parts{};
  if (!header.placed || !cosines(header, parts)) return {};
  std::array<std::size_t, 3> order{0, 1, 2}, best = order;
  double most = -1;
  do {
    double sum = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) sum += std::abs(parts[axis][order[axis]]);
    if (sum > most + 1e-9) most = sum, best = order;
  } while (std::next_permutation(order.begin(), order.end()));
  std::string letters;
  for (std::size_t axis = 0; axis < 3; ++axis) letters += (parts[axis][best[axis]] < 0 ? backwards : forwards)[best[axis]];
  return letters;
}

bool is_orientation(const std::string& text) {
  std::array<bool, 4> seen{};
  for (const char letter : text) seen[axis_of(letter)] = true;
  return text.size() == 3 && seen[0] && seen[1] && seen[2];
}

double shear_of(const VolumeHeader& header) {
  std::array<std::array<double, 3>, 3> parts{};
  if (!cosines(header, parts)) return 0;
  double most = 0;
  for (std::size_t a = 0; a < 3; ++a) {
    const auto &x = parts[a], &y = parts[(a + 1) % 3];
    most = std::max(most, std::abs(x[0] * y[0] + x[1] * y[1] + x[2] * y[2]));
  }
  return most;
}

std::string spacing_difference(const VolumeHeader& header) {
  constexpr double tolerance = 0.01;
  if (!header.placed) return "";
  std::array<double, 3> steps{};
  for (std::size_t a = 0; a < 3; ++a) steps[a] = std::hypot(header.affine[2 - a], header.affine[6 - a], header.affine[10 - a]);
  const auto& mm = header.spacing;
  for (std::size_t a = 0; a < 3; ++a)
    if (!(std::abs(steps[a] - mm[a]) <= tolerance * mm[a]))
      return fmt::format("cells of {:.4g} x {:.4g} x {:.4g} mm [z, y, x], and places them {:.4g} x {:.4g} x {:.4g} mm apart",
                         mm[0], mm[1], mm[2], steps[0], steps[1], steps[2]);
  return "";
}

Augmentation turn_between(const std::string& from, const std::string& to) {
  for (const auto& text : {from, to})
    require(is_orientation(text), "[data] '{}' is no orientation such as RAS: one letter each of R or L, A or P, S or I", text);
  Augmentation turn;
  for (std::size_t i = 0; i < 3; ++i) {  // letter i is that of axis 2 - i of [D, H, W]
    std::size_t there = 0;
    while (axis_of(from[there]) != axis_of(to[i])) ++there;
    turn.axes[2 - i] = static_cast<int>(2 - there), turn.flip[2 - i] = from[there] != to[i];
  }
  return turn;
}

Augmentation inverse_turn(const Augmentation& turn) {
  Augmentation inverse;
  for (std::size_t a = 0; a < 3; ++a) {
    const auto axis = static_cast<std::size_t>(turn.axes[a]);
    inverse.axes[axis] = static_cast<int>(a), inverse.flip[axis] = turn.flip[a];
  }
  return inverse;
}

bool turns(const Augmentation& turn) {
  const Augmentation none;
  return turn.axes != none.axes || turn.flip != none.flip;
}

VolumeHeader turned(const VolumeHeader& header, const Augmentation& turn) {
  auto result = header;
  result.format = {}, result.bytes.clear();
  for (std::size_t a = 0; a < 3; ++a) {
    const auto from = static_cast<std::size_t>(turn.axes[a]);
    const auto n = header.extents[turn.axes[a]];
    result.extents[static_cast<int>(a)] = n, result.spacing[a] = header.spacing[from];
    for (std::size_t row = 0; row < 3; ++row) {
      const double step = header.affine[4 * row + 2 - from];
      result.affine[4 * row + 2 - a] = turn.flip[a] ? -step : step;
      if (turn.flip[a]) result.affine[4 * row + 3] += static_cast<double>(n - 1) * step;
    }
  }
  return result;
}

std::vector<float> turned(std::vector<float> values, const Shape& extents, std::int64_t channels, const Augmentation& turn) {
  return turned_cells(std::move(values), DType::float32, extents, channels, turn);
}

std::vector<std::int32_t> turned(std::vector<std::int32_t> labels, const Shape& extents, const Augmentation& turn) {
  return turned_cells(std::move(labels), DType::int32, extents, 1, turn);
}

}  // namespace mpigrad::data
