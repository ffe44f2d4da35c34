#include "examples/tools/folding/chain.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/base/error.h"

namespace mpigrad::folding {
namespace {

constexpr double bond = 3.8;

double squared_distance(const Position& a, const Position& b) {
  double r2 = 0;
  for (std::size_t d = 0; d < 3; ++d) r2 += (a[d] - b[d]) * (a[d] - b[d]);
  return r2;
}

// Antiparallel strands along z, joined by turns of three residues.
std::vector<Position> strands(std::size_t count, std::size_t residues) {
  constexpr double rise = 3.3, zigzag = 0.94, apart = 5;
  constexpr std::size_t turn = 3;
  const auto length = (residues - turn * (count - 1)) / count;
  std::vector<Position> x;
  for (std::size_t s = 0; s < count; ++s) {
    const double left = apart * static_cast<double>(s), up = s % 2 == 0 ? 1 : -1;
    const auto own = s + 1 < count ? length : residues - x.size();
    for (std::size_t i = 0; i < own; ++i) {
      // Partners in neighbouring strands have the same height; the last strand may be longer.
      const auto height = s % 2 == 0 ? static_cast<double>(i) : static_cast<double>(length) - 1 - static_cast<double>(i);
      const bool even = std::lround(height) % 2 == 0;
      x.push_back({left, even ? zigzag : -zigzag, rise * height});
    }
    if (s + 1 == count) break;
    const auto top = x.back();
    x.push_back({left - 0.4, top[1], top[2] + up * 3.8});
    x.push_back({left + apart / 2, top[1], top[2] + up * 6.2});
    x.push_back({left + apart + 0.4, top[1], top[2] + up * 3.8});
  }
  return x;
}

// Standard normal numbers one after the other, two from each position of the generator.
struct Normals {
  Philox random;
  std::uint64_t at = 0;
  double kept = 0;
  bool has = false;
  double operator()() {
    if (has) return has = false, kept;
    const auto w = random.words(at++);
    const double u = (static_cast<double>((std::uint64_t{w[0]} << 21) ^ (w[1] >> 11)) + 0.5) * 0x1p-53;
    const double v = static_cast<double>((std::uint64_t{w[2]} << 21) ^ (w[3] >> 11)) * 0x1p-53;
    const double r = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
    kept = r * std::sin(angle), has = true;
    return r * std::cos(angle);
  }
};

// Bonds in random directions, of which none turns back by more than a right angle.
std::vector<Position> coil(std::size_t residues, Normals& normal) {
  std::vector<Position> x{{0, 0, 0}};
  Position last{0, 0, 1};
  while (x.size() < residues) {
    Position step{normal(), normal(), normal()};
    const double length = std::sqrt(squared_distance(step, {0, 0, 0}));
    double along = 0;
    for (std::size_t d = 0; d < 3; ++d) step[d] /= length, along += step[d] * last[d];
    if (!(along > 0)) continue;
    last = step;
    auto next = x.back();
    for (std::size_t d = 0; d < 3; ++d) next[d] += bond * step[d];
    x.push_back(next);
  }
  return x;
}

}  // namespace

Native native_structure(const std::string& name, std::int64_t residues) {
  require(name == "hairpin" || name == "sheet", "[folding] structures are hairpin and sheet, not '{}'", name);
  const std::size_t count = name == "sheet" ? 3 : 2, n = static_cast<std::size_t>(residues);
  require(residues >= 0 && n >= 8 * count, "[folding] a {} has at least {} residues, got {}", name, 8 * count, residues);
  Native native{strands(count, n)};
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 3; j < n; ++j)
      if (squared_distance(native.positions[i], native.positions[j]) < contact_distance * contact_distance)
        native.contacts.emplace_back(i, j);
  return native;
}

Energy::Energy(const Native& native) : residues_(native.positions.size()), native_distance_(residues_ * residues_) {
  const auto& x = native.positions;
  for (const auto& [i, j] : native.contacts) native_distance_[i * residues_ + j] = std::sqrt(squared_distance(x[i], x[j]));
  for (std::size_t i = 0; i + 2 < residues_; ++i)
    native_distance_[i * residues_ + i + 2] = std::sqrt(squared_distance(x[i], x[i + 2]));
}

double Energy::operator()(const std::vector<Position>& x, std::vector<Position>& gradient) const {
  constexpr double bonds = 50, angles = 10, radius = 4, weak = 0.3;
  constexpr std::size_t near = 6;
  double energy = 0;
  gradient.assign(residues_, {0, 0, 0});
  for (std::size_t i = 0; i < residues_; ++i)
    for (std::size_t j = i + 1; j < residues_; ++j) {
      const double r2 = squared_distance(x[i], x[j]), r0 = native_distance_[i * residues_ + j];
      double slope = 0;  // dE/dr / r
      if (j - i <= 2) {
        const double r = std::sqrt(r2), strength = j == i + 1 ? bonds : angles, off = r - (j == i + 1 ? bond : r0);
        energy += strength * off * off, slope = 2 * strength * off / r;
      } else if (r0 > 0) {
        const double q = r0 * r0 / r2, q5 = q * q * q * q * q;
        const double depth = j - i < near ? weak : 1;
        energy += depth * q5 * (5 * q - 6), slope = depth * 60 * q5 * (1 - q) / r2;
      } else {
        const double q = radius * radius / r2, q6 = q * q * q * q * q * q;
        energy += q6, slope = -12 * q6 / r2;
      }
      for (std::size_t d = 0; d < 3; ++d) {
        const double g = slope * (x[i][d] - x[j][d]);
        gradient[i][d] += g, gradient[j][d] -= g;
      }
    }
  return energy;
}

Frames simulate(const Simulation& s, const Philox& random) {
  require(s.frames > 0 && s.steps_per_frame > 0 && s.temperature > 0 && s.time_step > 0 && s.friction > 0,
          "[folding] frames, steps, temperature, time step and friction must be positive, got {}, {}, {}, {} and {}", s.frames,
          s.steps_per_frame, s.temperature, s.time_step, s.friction);
  const auto native = native_structure(s.structure, s.residues);
  const Energy energy(native);
  const auto n = native.positions.size();
  Normals normal{random};
  auto x = coil(n, normal);
  std::vector<Position> v(n), gradient(n);
  for (auto& each : v)
    for (auto& component : each) component = std::sqrt(s.temperature) * normal();
  const double keeps = std::exp(-s.friction * s.time_step), kicks = std::sqrt(s.temperature * (1 - keeps * keeps));
  energy(x, gradient);
  const auto step = [&] {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t d = 0; d < 3; ++d) {
        v[i][d] -= s.time_step / 2 * gradient[i][d];
        x[i][d] += s.time_step / 2 * v[i][d];
        v[i][d] = keeps * v[i][d] + kicks * normal();
        x[i][d] += s.time_step / 2 * v[i][d];
      }
    energy(x, gradient);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t d = 0; d < 3; ++d) v[i][d] -= s.time_step / 2 * gradient[i][d];
  };
  // Residues of the random coil may overlap; their repulsion would throw them apart.
  for (int k = 0; k < 2000; ++k) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t d = 0; d < 3; ++d) x[i][d] -= std::clamp(1e-3 * gradient[i][d], -0.05, 0.05);
    energy(x, gradient);
  }
  Frames frames;
  const auto before = s.frames / 10;
  for (std::int64_t frame = -before; frame < s.frames; ++frame) {
    for (std::int64_t k = 0; k < s.steps_per_frame; ++k) step();
    if (frame < 0) continue;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        frames.maps.push_back(squared_distance(x[i], x[j]) < contact_distance * contact_distance ? 1 : 0);
    const auto* map = frames.maps.data() + static_cast<std::size_t>(frame) * n * n;
    std::size_t formed = 0;
    for (const auto& [i, j] : native.contacts) formed += map[i * n + j];
    frames.native.push_back(static_cast<float>(formed) / static_cast<float>(native.contacts.size()));
  }
  require(std::isfinite(x[0][0]), "[folding] the chain flew apart: take a smaller time step than {}", s.time_step);
  return frames;
}

}  // namespace mpigrad::folding
