#include "examples/studies/scaling/tasks/lattice_image.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mpigrad::scaling {
namespace {

using Atom = Crystal::Atom;
constexpr double pi = std::numbers::pi, side = static_cast<double>(lattice_side);

// A sequence of random numbers.
struct Draws {
  explicit Draws(const Philox& from) : random(from) {}
  double between(double low, double high) { return low + (high - low) * random.uniform(at++); }
  std::uint64_t below(std::uint64_t n) { return random.below(at++, n); }
  double normal() { return random.normal(at++); }
  Philox random;
  std::uint64_t at = 0;
};

struct Lattice {
  double spacing = 0, angle = 0;
  Atom first{}, second{};  // lattice vectors
  Atom site(double i, double j, const Atom& origin) const {
    return {origin.x + i * first.x + j * second.x, origin.y + i * first.y + j * second.y};
  }
};

Atom turned(const Atom& a, double angle) {
  return {std::cos(angle) * a.x - std::sin(angle) * a.y, std::sin(angle) * a.x + std::cos(angle) * a.y};
}

// The displacement of the atom at `a` by an edge dislocation in the origin (Hirth and Lothe 1982, chapter 3), in a frame in which
// rows are along x; `slip` is the lattice step along them. At y = 0 and x < 0 the angle jumps by 2 pi, and the atoms by a whole
// step: the rows meet again, and one side of y = 0 has one more crossing row.
Atom dislocated(const Atom& a, double slip) {
  constexpr double poisson = 0.3;
  const double r2 = std::max(a.x * a.x + a.y * a.y, 0.1 * slip * slip);
  const double x = std::atan2(a.y, a.x) + a.x * a.y / (2 * (1 - poisson) * r2);
  const double y =
      (1 - 2 * poisson) / (4 * (1 - poisson)) * std::log(r2 / (slip * slip)) + (a.x * a.x - a.y * a.y) / (4 * (1 - poisson) * r2);
  return {slip / (2 * pi) * x, -slip / (2 * pi) * y};
}

double square_distance(const Atom& a, const Atom& b) { return (a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y); }

// Moves atoms towards `to` (or away, if `by` is negative), near ones most.
void relax(std::vector<Atom>& atoms, const Atom& to, double by, double spacing) {
  for (auto& a : atoms) {
    const double r2 = std::max(square_distance(a, to), 0.01 * spacing * spacing), r = std::sqrt(r2);
    const double step = by * spacing * std::exp(-r2 / (spacing * spacing));
    a.x += step * (to.x - a.x) / r, a.y += step * (to.y - a.y) / r;
  }
}

}  // namespace

Crystal make_crystal(const Philox& random) {
  Draws draw(random);
  Crystal crystal{.defect = static_cast<Defect>(draw.below(defect_names.size()))};
  const bool triangular = draw.below(2) == 1;
  Lattice lattice{.spacing = draw.between(4.2, 5) * (triangular ? 1.07 : 1), .angle = draw.between(-0.12, 0.12)};
  lattice.first = turned({lattice.spacing, 0}, lattice.angle);
  lattice.second = turned({0, lattice.spacing}, lattice.angle);
  if (triangular) lattice.second = turned({lattice.spacing / 2, lattice.spacing * std::sqrt(3.0) / 2}, lattice.angle);
  const double i0 = draw.between(0, 1), j0 = draw.between(0, 1);
  const Atom middle{side / 2, side / 2};
  // The defect is not at the border, where it could not be seen.
  const Atom place{draw.between(0.3, 0.7) * side, draw.between(0.3, 0.7) * side};
  constexpr int reach = 9;
  for (int i = -reach; i <= reach; ++i)
    for (int j = -reach; j <= reach; ++j) {
      auto a = lattice.site(i + i0, j + j0, middle);
      if (crystal.defect == Defect::dislocation) {
        const auto u = turned(dislocated(turned({a.x - place.x, a.y - place.y}, -lattice.angle), lattice.spacing), lattice.angle);
        a.x += u.x, a.y += u.y;
      }
      if (a.x > -3 && a.x < side + 2 && a.y > -3 && a.y < side + 2) crystal.atoms.push_back(a);
    }
  auto& atoms = crystal.atoms;
  const auto nearest = std::min_element(atoms.begin(), atoms.end(), [&](const Atom& a, const Atom& b) {
    return square_distance(a, place) < square_distance(b, place);
  });
  if (crystal.defect == Defect::vacancy) {
    const auto removed = *nearest;
    atoms.erase(nearest);
    relax(atoms, removed, 0.1, lattice.spacing);
  } else if (crystal.defect == Defect::interstitial) {
    // The centre of a cell, or of a triangle if cells consist of two of them.
    const double part = triangular ? 1.0 / 3 : 0.5;
    const auto between = lattice.site(part, part, *nearest);
    relax(atoms, between, -0.3, lattice.spacing);
    atoms.push_back(between);
  }
  return crystal;
}

void expose(const Crystal& crystal, const Exposure& exposure, const Philox& random, std::span<float> pixels) {
  Draws draw(random);
  std::vector<double> light(pixels.size());
  constexpr double width = 1.15, brightness = 3, background = 1.2;
  constexpr std::int64_t around = 3;
  for (const auto& atom : crystal.atoms) {
    Atom a{atom.x + exposure.jitter * draw.normal() - side / 2, atom.y + exposure.jitter * draw.normal() - side / 2};
    if (exposure.mirrored) a.x = -a.x;
    for (int i = 0; i < exposure.turn; ++i) a = {a.y, -a.x};
    a.x += side / 2 - 0.5, a.y += side / 2 - 0.5;  // coordinates of pixel centres
    // The Gaussian is a product, so only few exponentials are needed.
    const auto column = std::lround(a.x), row = std::lround(a.y);
    std::array<double, 2 * around + 1> along_x{}, along_y{};
    for (std::int64_t k = -around; k <= around; ++k) {
      const double x = static_cast<double>(column + k) - a.x, y = static_cast<double>(row + k) - a.y;
      along_x[static_cast<std::size_t>(k + around)] = std::exp(-x * x / (2 * width * width));
      along_y[static_cast<std::size_t>(k + around)] = brightness * std::exp(-y * y / (2 * width * width));
    }
    for (auto r = std::max<std::int64_t>(0, row - around); r <= std::min(lattice_side - 1, row + around); ++r)
      for (auto c = std::max<std::int64_t>(0, column - around); c <= std::min(lattice_side - 1, column + around); ++c)
        light[static_cast<std::size_t>(r * lattice_side + c)] +=
            along_y[static_cast<std::size_t>(r - row + around)] * along_x[static_cast<std::size_t>(c - column + around)];
  }
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<float>(light[i] - background + exposure.noise * draw.normal());
}

}  // namespace mpigrad::scaling
