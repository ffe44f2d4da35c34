#include "examples/studies/sample_size/floor.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "framework/base/error.h"

namespace mpigrad::sample_size {
namespace {

using universe::LinearPower;

constexpr double step = 0.01;  // step in u, for central differences

// ln P(k) and its derivatives by u.
struct Slopes {
  double power = 0;
  std::array<double, 4> slope{};
};

// The spectra on both sides of u = 0, for each parameter.
class Neighbours {
 public:
  explicit Neighbours(universe::Spectrum spectrum) : centre_(spectrum, cosmology_of({})) {
    for (std::size_t a = 0; a < 4; ++a)
      for (const double side : {-step, step}) {
        std::array<double, 4> u{};
        u[a] = side;
        around_.emplace_back(spectrum, cosmology_of(u));
      }
  }

  Slopes power(double k) const {
    return {centre_(k), slopes([&](const LinearPower& p) { return p(k); })};
  }
  Slopes growth(double redshift) const {
    return {centre_.relative_growth(redshift), slopes([&](const LinearPower& p) { return p.relative_growth(redshift); })};
  }

 private:
  template <class F>
  std::array<double, 4> slopes(F f) const {
    std::array<double, 4> result{};
    for (std::size_t a = 0; a < 4; ++a) result[a] = std::log(f(around_[2 * a + 1]) / f(around_[2 * a])) / (2 * step);
    return result;
  }

  LinearPower centre_;
  std::vector<LinearPower> around_;
};

// Values that all modes of one |k| share. Their covariance is C = s v v^T + N with v_i = D_i and s = P W^2, so s v v^T has the
// derivative s (w_a v^T + v w_a^T), w_a = v (1/2 dlnP/du_a + dlnD/du_a), and with S = s v.v (Sherman & Morrison)
//   1/2 tr(C^-1 C,a C^-1 C,b) = 2 s^2 (v.w_a) (v.w_b) / (N + S)^2 + S / (N + S) s (w_a.w_b - (v.w_a) (v.w_b) / v.v) / N.
struct Shell {
  double power = 0, square = 0;   // P, v.v
  std::array<double, 4> along{};  // v.w_a
  Matrix4 across{};               // w_a.w_b - (v.w_a) (v.w_b) / v.v
};

Shell shell_of(const Slopes& power, const std::vector<Slopes>& growth) {
  Shell shell{.power = power.power};
  Matrix4 products{};
  for (const auto& channel : growth) {
    const double square = channel.power * channel.power;
    std::array<double, 4> slope{};
    for (std::size_t a = 0; a < 4; ++a) slope[a] = 0.5 * power.slope[a] + channel.slope[a];
    shell.square += square;
    for (std::size_t a = 0; a < 4; ++a) {
      shell.along[a] += square * slope[a];
      for (std::size_t b = 0; b < 4; ++b) products[a][b] += square * slope[a] * slope[b];
    }
  }
  // With one channel this is exactly zero; rounding would not give that.
  if (growth.size() > 1)
    for (std::size_t a = 0; a < 4; ++a)
      for (std::size_t b = 0; b < 4; ++b) shell.across[a][b] = products[a][b] - shell.along[a] * shell.along[b] / shell.square;
  return shell;
}

}  // namespace

universe::Cosmology cosmology_of(const std::array<double, 4>& u) {
  return {(1 + 0.1 * u[0]) * 0.30, (1 + 0.1 * u[1]) * 0.80, (1 + 0.1 * u[2]) * 0.96, (1 + 0.1 * u[3]) * 70};
}

Matrix4 fisher_information(const GaussianField& f) {
  require(f.cells_per_side >= 2 && f.cells_per_side <= 4096, "[floor] a cube has 2 to 4096 cells per side, got {}",
          f.cells_per_side);
  require(std::isfinite(f.cell) && f.cell > 0, "[floor] cells have a positive side (Mpc/h), got {}", f.cell);
  require(!f.redshifts.empty(), "[floor] a field has at least one redshift");
  require(f.particles_per_cell > 0 && (std::isfinite(f.particles_per_cell) || f.redshifts.size() == 1),
          "[floor] the number of particles per cell is positive, and finite where there are several redshifts, got {}",
          f.particles_per_cell);

  const Neighbours neighbours(f.spectrum);
  std::vector<Slopes> growth;
  for (const double redshift : f.redshifts) growth.push_back(neighbours.growth(redshift));
  const std::int64_t n = f.cells_per_side, half = n / 2;
  const double fundamental = 2 * std::numbers::pi / (static_cast<double>(n) * f.cell);
  const double noise = f.cell * f.cell * f.cell / f.particles_per_cell;

  std::vector<double> window(static_cast<std::size_t>(half + 1), 1.0);  // squared window, for one axis
  for (std::int64_t i = 1; f.window && i <= half; ++i) {
    const double x = std::numbers::pi * static_cast<double>(i) / static_cast<double>(n);
    window[static_cast<std::size_t>(i)] = std::pow(std::sin(x) / x, 2);
  }
  // The weights of the two terms, added up over the modes of one |n|^2.
  struct Weight {
    double along = 0, across = 0;
  };
  std::vector<Weight> weights(static_cast<std::size_t>(3 * half * half + 1));
  std::vector<Shell> shells(weights.size());
  std::vector<bool> known(weights.size());
  const auto signs = [&](std::int64_t i) { return i == 0 || 2 * i == n ? 1 : 2; };
  for (std::int64_t x = 1; x <= half; ++x)
    for (std::int64_t y = 0; y <= x; ++y)
      for (std::int64_t z = 0; z <= y; ++z) {
        const int orders = x == y && y == z ? 1 : x == y || y == z ? 3 : 6;
        const double modes = orders * signs(x) * signs(y) * signs(z);
        const auto place = static_cast<std::size_t>(x * x + y * y + z * z);
        auto& shell = shells[place];
        if (!known[place]) shell = shell_of(neighbours.power(fundamental * std::sqrt(static_cast<double>(place))), growth);
        known[place] = true;
        const auto w = [&](std::int64_t i) { return window[static_cast<std::size_t>(i)]; };
        const double s = shell.power * w(x) * w(y) * w(z), signal = s * shell.square;
        weights[place].along += modes * 2 * std::pow(s / (noise + signal), 2);
        if (growth.size() > 1) weights[place].across += modes * signal / (noise + signal) * s / noise;
      }
  Matrix4 fisher{};
  for (std::size_t place = 0; place < shells.size(); ++place) {
    if (!known[place]) continue;
    const auto& shell = shells[place];
    for (std::size_t a = 0; a < 4; ++a)
      for (std::size_t b = 0; b < 4; ++b)
        fisher[a][b] += weights[place].along * shell.along[a] * shell.along[b] + weights[place].across * shell.across[a][b];
  }
  return fisher;
}

std::array<double, 4> posterior_fraction(const Matrix4& fisher) {
  // Cholesky's factor L of the positive matrix F + 1 / prior_variance; column a of its inverse by forward substitution.
  Matrix4 factor{};
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double rest = fisher[i][j] + (i == j ? 1 / prior_variance : 0);
      for (std::size_t k = 0; k < j; ++k) rest -= factor[i][k] * factor[j][k];
      require(i != j || rest > 0, "[floor] the information of a field is a positive matrix");
      factor[i][j] = i == j ? std::sqrt(rest) : rest / factor[j][j];
    }
  std::array<double, 4> fraction{};
  for (std::size_t a = 0; a < 4; ++a) {
    std::array<double, 4> column{};
    for (std::size_t i = a; i < 4; ++i) {
      double rest = i == a ? 1 : 0;
      for (std::size_t k = a; k < i; ++k) rest -= factor[i][k] * column[k];
      column[i] = rest / factor[i][i];
      fraction[a] += column[i] * column[i] / prior_variance;
    }
  }
  return fraction;
}

std::array<double, 4> floor_variance(std::int64_t cells_per_side, double cell, std::span<const double> redshifts,
                                     double particles_per_cell, universe::Spectrum spectrum) {
  return posterior_fraction(fisher_information({.cells_per_side = cells_per_side,
                                                .cell = cell,
                                                .redshifts = redshifts,
                                                .particles_per_cell = particles_per_cell,
                                                .spectrum = spectrum}));
}

}  // namespace mpigrad::sample_size
