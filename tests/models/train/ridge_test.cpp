// Ridge regression against independent results.

#include "models/train/ridge.h"

#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>
#include <random>

#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Problem {
  std::vector<double> x, y;
  std::int64_t samples;
};
// y = 3 + x w + noise; x has `features` columns of very different sizes.
Problem linear_problem(std::int64_t samples, std::size_t features, double noise, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Problem p{.x = {}, .y = {}, .samples = samples};
  for (std::int64_t i = 0; i < samples; ++i) {
    double y = 3;
    for (std::size_t j = 0; j < features; ++j) {
      const double value = normal(random);
      p.x.push_back(100 + std::pow(10, static_cast<double>(j % 5) - 2) * value);
      if (j < 3) y += static_cast<double>(j + 1) * value;
    }
    p.y.push_back(y + noise * normal(random));
    p.y.push_back(normal(random));  // independent of all features
  }
  return p;
}

double mean_squared_error(const Ridge& ridge, const Problem& p, std::size_t target) {
  const auto predicted = ridge(p.x);
  double sum = 0;
  for (std::size_t i = target; i < p.y.size(); i += 2) sum += std::pow(predicted[i] - p.y[i], 2);
  return sum / static_cast<double>(p.samples);
}

}  // namespace

TEST_CASE("ridge: finds a line, and predicts nothing where there is none") {
  const auto fitted = linear_problem(100, 40, 0.5, 1), other = linear_problem(2000, 40, 0.5, 2);
  const auto ridge = fit_ridge(fitted.x, fitted.y, fitted.samples);
  CHECK(mean_squared_error(ridge, other, 0) < 0.6);  // only the noise: 0.25; least squares without penalty about 0.42
  CHECK(mean_squared_error(ridge, other, 1) < 1.3);  // predicting the mean: 1; least squares without penalty about 1.7
  CHECK(ridge.penalty[0] < ridge.penalty[1]);
  CHECK(ridge.offset[0] == doctest::Approx(3).epsilon(0.5));
}

TEST_CASE("ridge: the penalty is that of samples left out one at a time") {
  for (const std::uint64_t seed : {3, 4, 5, 6}) {
    // One feature: the line through all samples but one in closed form.
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> x, y;
    for (int i = 0; i < 15; ++i) x.push_back(normal(random)), y.push_back(0.5 * x.back() + normal(random));
    const auto ridge = fit_ridge(x, y, 15);
    double least = 1e300, penalty = 0;
    for (int exponent = -5; exponent <= 5; ++exponent) {
      double error = 0;
      for (std::size_t out = 0; out < x.size(); ++out) {
        double n = 0, sa = 0, sy = 0, saa = std::pow(10, exponent), say = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double a = (x[i] - ridge.mean[0]) / ridge.scale[0];
          if (i != out) n += 1, sa += a, sy += y[i], saa += a * a, say += a * y[i];
        }
        const double w = (n * say - sa * sy) / (n * saa - sa * sa), offset = (sy - w * sa) / n;
        error += std::pow(y[out] - offset - w * (x[out] - ridge.mean[0]) / ridge.scale[0], 2);
      }
      if (error < least) least = error, penalty = std::pow(10, exponent);
    }
    CHECK(ridge.penalty[0] == penalty);
  }
}

TEST_CASE("ridge: the same bits with any number of threads") {
  const auto problem = linear_problem(603, 40, 0.5, 7);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto one = fit_ridge(problem.x, problem.y, problem.samples);
  for (const int threads : {2, 5}) {
    omp_set_num_threads(threads);
    const auto other = fit_ridge(problem.x, problem.y, problem.samples);
    CHECK(other.weight == one.weight);
    CHECK(other.penalty == one.penalty);
  }
  omp_set_num_threads(before);
}

TEST_CASE("ridge: few samples, a constant feature, an offset") {
  auto wide = linear_problem(12, 30, 0.1, 4);
  for (std::size_t i = 0; i < wide.x.size(); i += 30) wide.x[i] = 7;
  const auto ridge = fit_ridge(wide.x, wide.y, wide.samples);
  CHECK(ridge.scale[0] == 1);
  CHECK(std::abs(ridge.weight[0]) < 1e-12);
  CHECK(std::isfinite(mean_squared_error(ridge, wide, 0)));
  for (auto& y : wide.y) y += 10;
  const auto shifted = fit_ridge(wide.x, wide.y, wide.samples);
  CHECK(shifted.penalty == ridge.penalty);
  CHECK(shifted.offset[0] == doctest::Approx(ridge.offset[0] + 10));
  CHECK(shifted.weight[3] == doctest::Approx(ridge.weight[3]));
}

TEST_CASE("ridge: what cannot be fitted is refused") {
  const std::vector<double> x{1, 2, 3, 4}, y{1, 2}, bad{1, std::nan("")};
  CHECK(has(error_text([&] { fit_ridge(x, y, 1); }), "[ridge] needs two samples, got 1"));
  CHECK(has(error_text([&] { fit_ridge(x, y, 3); }), "are not those of 3 samples"));
  CHECK(has(error_text([&] { fit_ridge(x, bad, 2); }), "not finite"));
  CHECK(has(error_text([&] { fit_ridge(x, y, 2)(y.empty() ? x : std::vector<double>{1, 2, 3}); }), "not samples of 2 features"));
}
