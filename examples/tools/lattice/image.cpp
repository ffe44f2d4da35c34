#include "examples/tools/lattice/image.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "framework/base/error.h"

namespace mpigrad::lattice {
namespace {

constexpr double degree = std::numbers::pi / 180;

double between(const Philox& random, std::uint64_t at, double low, double high) {
  return low + (high - low) * random.uniform(at);
}

}  // namespace

Structure structure_of_class(std::int64_t number, const Philox& random) {
  require(number >= 0 && number < classes, "[lattice] classes are 0 to {}, not {}", classes - 1, number);
  return {.spacing = between(random, 0, 8, 12),
          .ratio = ratios[static_cast<std::size_t>(number / 9)],
          .angle = angles[static_cast<std::size_t>(number / 3 % 3)],
          .motif = static_cast<int>(number % 3)};
}

Structure random_structure(const Philox& random) {
  return {.spacing = between(random, 0, 8, 12), .ratio = between(random, 1, 1, 1.6), .angle = between(random, 2, 60, 90)};
}

void draw(const Structure& s, const Philox& random, std::span<std::uint8_t> pixels) {
  constexpr double width = 1.4, atom = 90, dim = 0.6, background = 60, displacement = 0.03;
  constexpr std::int64_t around = 5;
  require(std::ssize(pixels) == rows * columns, "[lattice] an image has {} pixels, not {}", rows * columns, pixels.size());
  std::vector<double> light(pixels.size(), background);
  std::uint64_t at = 0;
  const double turn = between(random, at++, 0, 360) * degree, u = random.uniform(at++), v = random.uniform(at++);
  const double ax = s.spacing * std::cos(turn), ay = s.spacing * std::sin(turn);
  const double bx = s.spacing * s.ratio * std::cos(turn + s.angle * degree),
               by = s.spacing * s.ratio * std::sin(turn + s.angle * degree);
  const auto add = [&](double i, double j, double brightness) {
    const double x = columns / 2.0 + i * ax + j * bx + displacement * s.spacing * random.normal(at);
    const double y = rows / 2.0 + i * ay + j * by + displacement * s.spacing * random.normal(at + 1);
    at += 2;
    const auto column = std::lround(x), row = std::lround(y);
    for (auto r = std::max<std::int64_t>(0, row - around); r <= std::min(rows - 1, row + around); ++r)
      for (auto c = std::max<std::int64_t>(0, column - around); c <= std::min(columns - 1, column + around); ++c) {
        const double dx = static_cast<double>(c) - x, dy = static_cast<double>(r) - y;
        light[static_cast<std::size_t>(r * columns + c)] += brightness * std::exp(-(dx * dx + dy * dy) / (2 * width * width));
      }
  };
  // Cells of an image's half diagonal, 74 pixels, in each direction; the smallest height of a cell is 8 sin(60 degrees).
  constexpr int reach = 12;
  for (int i = -reach; i <= reach; ++i)
    for (int j = -reach; j <= reach; ++j) {
      add(i + u, j + v, atom);
      if (s.motif == 1) add(i + u + 0.5, j + v + 0.5, dim * atom);
      if (s.motif == 2) add(i + u + 0.5, j + v, dim * atom);
    }
  for (std::size_t k = 0; k < pixels.size(); ++k)
    pixels[k] = static_cast<std::uint8_t>(std::lround(std::clamp(light[k] + atom / 4 * random.normal(at++), 0.0, 255.0)));
}

}  // namespace mpigrad::lattice
