// Linear theory of universes: power spectra, growth and transfer functions against tables of other codes, and parameters without
// meaning.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "examples/tools/universe/cosmology.h"
#include "framework/base/error.h"
#include "tests/examples/tools/universe_reference.h"
#include "tests/support/shared_data.h"
#include "tests/support/skip.h"

namespace mpigrad::universe {

namespace {

// Rows of numbers; lines that do not start with one are left out.
std::vector<std::vector<double>> read_table(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::vector<double>> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream stream(line);
    std::vector<double> row;
    for (double value = 0; stream >> value;) row.push_back(value);
    if (!row.empty()) rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST_CASE("universe: power spectra match tables of another code to 1e-5 at all redshifts") {
  for (const auto spectrum : {Spectrum::bbks, Spectrum::eh_nowiggle}) {
    const std::string name = spectrum == Spectrum::bbks ? "model1_pk.txt" : "model1_nowig_pk_eh.txt";
    const auto path = testing::shared_data("cosmo/pk/ccl/" + name);
    if (path.empty()) return testing::skip_test("universe power spectra", testing::no_shared_data);
    const LinearPower power(spectrum, reference);
    double worst = 0;
    int values = 0;
    for (const auto& row : read_table(path))
      for (std::size_t z = 0; z + 1 < row.size(); ++z, ++values)
        worst = std::max(worst, std::abs(power(row[0], static_cast<double>(z)) / row[z + 1] - 1));
    CAPTURE(name);
    CHECK(values == 41 * 6);
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("universe: growth matches a table of another code, and its limits") {
  CHECK(growth({.omega_m = 1}, 1) == doctest::Approx(0.5).epsilon(1e-12));
  CHECK(growth({.omega_m = 0.3}, 999) == doctest::Approx(1e-3).epsilon(1e-8));
  const auto path = testing::shared_data("cosmo/pk/ccl/model1_gf.txt");
  if (path.empty()) return testing::skip_test("universe growth", testing::no_shared_data);
  const auto rows = read_table(path);
  CHECK(rows.size() == 6);
  for (const auto& row : rows) CHECK(growth(reference, row[0]) == doctest::Approx(row[1]).epsilon(1e-7));
}

TEST_CASE("universe: sigma_8 is the integral over the spectrum") {
  for (const auto spectrum : {Spectrum::bbks, Spectrum::eh, Spectrum::eh_nowiggle}) {
    const LinearPower power(spectrum, reference);
    double sum = 0;  // by another rule in another variable: midpoints in k
    const double step = 1e-4;
    for (double k = step / 2; k < 20; k += step) {
      const double x = 8 * k, w = 3 * (std::sin(x) - x * std::cos(x)) / (x * x * x);
      sum += step * k * k * power(k) * w * w;
    }
    CHECK(std::sqrt(sum / 2) / std::numbers::pi == doctest::Approx(0.8).epsilon(1e-5));
  }
}

TEST_CASE("universe: oscillations wind about the fit without them") {
  const LinearPower with(Spectrum::eh, reference), without(Spectrum::eh_nowiggle, reference);
  int crossings = 0;
  double previous = 0;
  for (double k = 0.02; k < 0.4; k *= 1.01) {
    const double ratio = with(k) / without(k);
    CHECK(std::abs(ratio - 1) < 0.08);
    const double sign = ratio > 1 ? 1 : -1;
    crossings += previous != 0 && sign != previous ? 1 : 0;
    previous = sign;
  }
  CHECK(crossings >= 3);
}

TEST_CASE("universe: the transfer function with oscillations agrees with an independent implementation") {
  // colossus 1.3, modelEisenstein98 at h = 0.7, Omega_m = 0.3, Omega_b = 0.05, 2.725 K
  for (const auto& [k, value] : {std::pair{1e-4, 0.9999069377840821},
                                 {1e-3, 0.992258265080966},
                                 {1e-2, 0.7799501832102854},
                                 {0.03, 0.43116207723270167},
                                 {0.05, 0.2677799842107241},
                                 {0.08, 0.17520877558479425},
                                 {0.1, 0.1286604377381438},
                                 {0.2, 0.05413086313916116},
                                 {0.5, 0.013825564097598421},
                                 {1.0, 0.004590609165560459},
                                 {10.0, 8.782524461765674e-05}})
    CHECK(transfer(Spectrum::eh, reference, 2.725, k) == doctest::Approx(value).epsilon(1e-10));
}

TEST_CASE("universe: parameters without meaning are refused") {
  CHECK_THROWS_AS(LinearPower(Spectrum::eh, {.omega_m = 1.5}), Error);
  CHECK_THROWS_AS(LinearPower(Spectrum::eh, {.omega_m = 0.3, .omega_b = 0.3}), Error);
  CHECK_THROWS_AS(LinearPower(Spectrum::eh, {.sigma_8 = -1}), Error);
  CHECK_THROWS_AS(LinearPower(Spectrum::eh, {.hubble = std::nan("")}), Error);
  CHECK_THROWS_AS(growth({}, -1), Error);
  CHECK_THROWS_AS(spectrum_of("camb"), Error);
}

}  // namespace mpigrad::universe
