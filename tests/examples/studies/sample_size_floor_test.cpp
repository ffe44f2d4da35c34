// Whether larger samples are predicted better: the floor that Gaussian fields have, by the information that they hold.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "examples/studies/sample_size/floor.h"
#include "examples/tools/universe/cosmology.h"
#include "examples/tools/universe/simulation.h"
#include "framework/base/error.h"

namespace mpigrad::sample_size {
namespace {

using universe::LinearPower;
using universe::Spectrum;
constexpr std::array<double, 1> today{0};
constexpr double infinity = std::numeric_limits<double>::infinity();

using Dense = std::vector<std::vector<double>>;

Dense product(const Dense& a, const Dense& b) {
  Dense c(a.size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < a.size(); ++k)
      for (std::size_t j = 0; j < a.size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

// Gauss & Jordan, for positive matrices.
Dense inverse(Dense a) {
  const auto n = a.size();
  Dense result(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) result[i][i] = 1;
  for (std::size_t i = 0; i < n; ++i) {
    const double pivot = a[i][i];
    for (std::size_t j = 0; j < n; ++j) a[i][j] /= pivot, result[i][j] /= pivot;
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double by = a[r][i];
      for (std::size_t j = 0; j < n; ++j) a[r][j] -= by * a[i][j], result[r][j] -= by * result[i][j];
    }
  }
  return result;
}

// The definition, mode by mode, with matrices of channels.
Matrix4 slow_fisher(std::int64_t n, double cell, double particles) {
  const double h = 0.01;
  std::vector<LinearPower> spectra;
  for (std::size_t a = 0; a < 4; ++a)
    for (const double side : {h, -h}) {
      std::array<double, 4> u{};
      u[a] = side;
      spectra.emplace_back(Spectrum::eh, cosmology_of(u));
    }
  const LinearPower centre(Spectrum::eh, cosmology_of({}));
  constexpr std::size_t channels = universe::redshifts.size();
  const auto growths = [](const LinearPower& power) {
    std::array<double, channels> growth{};
    for (std::size_t i = 0; i < channels; ++i) growth[i] = power.relative_growth(universe::redshifts[i]);
    return growth;
  };
  std::vector<std::array<double, channels>> growth;
  for (const auto& power : spectra) growth.push_back(growths(power));
  const auto at_centre = growths(centre);
  Matrix4 fisher{};
  const auto frequency = [&](std::int64_t i) { return 2 * i > n ? i - n : i; };
  for (std::int64_t mode = 1; mode < n * n * n; ++mode) {
    double square = 0, window = 1;
    for (const auto index : {mode / (n * n), mode / n % n, mode % n}) {
      const double k = 2 * std::numbers::pi * static_cast<double>(frequency(index)) / (static_cast<double>(n) * cell);
      square += k * k;
      if (index != 0) window *= std::sin(k * cell / 2) / (k * cell / 2);
    }
    const auto covariance = [&](const LinearPower& power, const std::array<double, channels>& d) {
      Dense c(channels, std::vector<double>(channels));
      for (std::size_t i = 0; i < channels; ++i)
        for (std::size_t j = 0; j < channels; ++j)
          c[i][j] = d[i] * d[j] * power(std::sqrt(square)) * window * window + (i == j ? cell * cell * cell / particles : 0);
      return c;
    };
    const auto inverted = inverse(covariance(centre, at_centre));
    std::vector<Dense> slopes;
    for (std::size_t a = 0; a < 4; ++a) {
      auto high = covariance(spectra[2 * a], growth[2 * a]);
      const auto low = covariance(spectra[2 * a + 1], growth[2 * a + 1]);
      for (std::size_t i = 0; i < channels; ++i)
        for (std::size_t j = 0; j < channels; ++j) high[i][j] = (high[i][j] - low[i][j]) / (2 * h);
      slopes.push_back(product(inverted, high));
    }
    for (std::size_t a = 0; a < 4; ++a)
      for (std::size_t b = 0; b < 4; ++b) {
        const auto both = product(slopes[a], slopes[b]);
        for (std::size_t i = 0; i < channels; ++i) fisher[a][b] += 0.5 * both[i][i];
      }
  }
  return fisher;
}

}  // namespace

TEST_CASE("sample_size: the information of a field is what its definition gives, mode by mode") {
  for (const std::int64_t n : {3, 6}) {
    const auto fast = fisher_information({.cells_per_side = n, .cell = 8, .particles_per_cell = 2});
    const auto slow = slow_fisher(n, 8, 2);
    for (std::size_t a = 0; a < 4; ++a)
      for (std::size_t b = 0; b < 4; ++b) {
        CHECK(fast[a][b] == doctest::Approx(slow[a][b]).epsilon(1e-3));  // both differentiate numerically: ln P and C
        CHECK(fast[a][b] == doctest::Approx(fast[b][a]).epsilon(1e-12));
      }
  }
}

TEST_CASE("sample_size: sigma_8 alone by hand, on the seven modes of 2^3 cells") {
  // P is sigma_8^2 times something, so dlnP/du = 2 * 0.1, and each mode says 1/2 (0.2 S / (S + N))^2.
  const auto silent = fisher_information({.cells_per_side = 2, .redshifts = today, .particles_per_cell = infinity});
  CHECK(silent[1][1] == doctest::Approx(7 * 0.02).epsilon(1e-3));
  const LinearPower power(Spectrum::eh, cosmology_of({}));
  const double nyquist = std::numbers::pi / 5, window = std::pow(2 / std::numbers::pi, 2);  // of one axis, squared
  double expected = 0;
  for (const auto& [axes, modes] : {std::pair{1, 3}, {2, 3}, {3, 1}}) {
    const double signal = power(nyquist * std::sqrt(axes)) * std::pow(window, axes);
    expected += modes * 0.02 * std::pow(signal / (signal + 125 / 3.0), 2);
  }
  const auto noisy = fisher_information({.cells_per_side = 2, .cell = 5, .redshifts = today, .particles_per_cell = 3});
  CHECK(noisy[1][1] == doctest::Approx(expected).epsilon(1e-3));
}

TEST_CASE("sample_size: what is left of the prior's variance") {
  Matrix4 fisher{};
  for (const double fraction : posterior_fraction(fisher)) CHECK(fraction == doctest::Approx(1));
  for (std::size_t a = 0; a < 4; ++a) fisher[a][a] = static_cast<double>(3 * a);
  for (std::size_t a = 0; a < 4; ++a) CHECK(posterior_fraction(fisher)[a] == doctest::Approx(1 / (1 + static_cast<double>(a))));
  fisher = {};
  fisher[0][0] = fisher[2][2] = 5, fisher[0][2] = fisher[2][0] = 4;  // of [[8, 4], [4, 8]] the inverse has 8 / 48
  CHECK(posterior_fraction(fisher)[0] == doctest::Approx(3 * 8.0 / 48));
  CHECK(posterior_fraction(fisher)[2] == doctest::Approx(3 * 8.0 / 48));
  CHECK(posterior_fraction(fisher)[1] == doctest::Approx(1));
  fisher[0][2] = fisher[2][0] = 9;
  CHECK_THROWS_AS(posterior_fraction(fisher), Error);
}

TEST_CASE("sample_size: more volume, more channels and more particles never raise the floor") {
  const std::array<double, 2> two{0.5, 0};
  // Each of these lists from little to much.
  using Fractions = std::vector<std::array<double, 4>>;
  const auto one = floor_variance(16, 4, today), four = floor_variance(16, 4);
  const std::array<Fractions, 3> lists{
      Fractions{{1, 1, 1, 1}, floor_variance(4, 4), floor_variance(8, 4), four, floor_variance(32, 4)},
      Fractions{one, floor_variance(16, 4, two), four},
      Fractions{one, floor_variance(16, 4, today, 8), floor_variance(16, 4, today, infinity)}};
  for (const auto& list : lists)
    for (std::size_t i = 1; i < list.size(); ++i)
      for (std::size_t p = 0; p < 4; ++p) {
        CHECK(list[i][p] > 0);
        CHECK(list[i][p] < list[i - 1][p]);
      }
  CHECK_THROWS_AS(floor_variance(16, 4, two, infinity), Error);
  CHECK_THROWS_AS(floor_variance(1, 4), Error);
  CHECK_THROWS_AS(floor_variance(16, 0), Error);
}

TEST_CASE("sample_size: floors of one redshift are those of an independent estimate") {
  // Made with a smooth spectrum, of which BBKS' comes closest; oscillations of baryons say more of Omega_m and H_0 at 64^3.
  const std::array<std::array<double, 4>, 3> estimates{
      {{0.92, 0.32, 0.66, 0.95}, {0.87, 0.125, 0.40, 0.92}, {0.78, 0.025, 0.23, 0.87}}};
  std::int64_t n = 8;
  for (const auto& expected : estimates) {
    const auto smooth = floor_variance(n *= 2, 4, today, 1, Spectrum::bbks), whole = floor_variance(n, 4, today);
    for (std::size_t p = 0; p < 4; ++p) CHECK(smooth[p] == doctest::Approx(expected[p]).epsilon(0.08));
    CHECK(whole[1] == doctest::Approx(expected[1]).epsilon(0.04));
  }
}

}  // namespace mpigrad::sample_size
