// Whether larger samples are predicted better: errors and their intervals, and what is said.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/studies/sample_size/report.h"
#include "framework/base/error.h"
#include "framework/tensor/random.h"
#include "tests/support/files.h"

namespace mpigrad::sample_size {
namespace {

using Trainings = std::vector<std::vector<CubePrediction>>;

// Cubes of `universes` universes: a truth, and answers slope * (truth + noise) with one noise for each cube.
struct Drawn {
  std::uint64_t seed = 1;
  std::int64_t universes = 100, cubes = 1;
  double slope = 1, noise = 0.1;
};

double truth_of(std::uint64_t seed, std::int64_t universe, std::size_t p) {
  return 2 * Philox{seed, 1}.uniform(static_cast<std::uint64_t>(4 * universe) + p) - 1;
}
double noise_of(std::uint64_t seed, std::int64_t cube, std::size_t p) {
  return Philox{seed, 2}.normal(static_cast<std::uint64_t>(4 * cube) + p);
}

std::vector<CubePrediction> draw_cubes(const Drawn& d) {
  std::vector<CubePrediction> result;
  for (std::int64_t cube = 0; cube < d.universes * d.cubes; ++cube) {
    CubePrediction c{.universe = 10 + cube / d.cubes};
    for (std::size_t p = 0; p < 4; ++p) {
      c.truth[p] = truth_of(d.seed, cube / d.cubes, p);
      c.predicted[p] = d.slope * (c.truth[p] + d.noise * noise_of(d.seed, cube, p));
    }
    result.push_back(c);
  }
  return result;
}

Scores score_one(const std::vector<CubePrediction>& cubes, std::int64_t resamples = 1000) {
  return score(Trainings{cubes}, 7, resamples);
}

// With a regression whose errors are twice as large.
SizeResult result_of(std::int64_t size, const Trainings& trainings) {
  auto regression = trainings.front();
  for (auto& c : regression)
    for (std::size_t p = 0; p < 4; ++p) c.predicted[p] = c.truth[p] + 2 * (c.predicted[p] - c.truth[p]);
  return evaluate(size, 16, 4, trainings, regression, 3);
}

}  // namespace

TEST_CASE("sample_size: errors of cubes and of averages by hand") {
  std::vector<CubePrediction> cubes;
  for (int universe = 0; universe < 4; ++universe)
    for (const double off : {0.3, -0.1}) {
      CubePrediction c{.universe = universe, .truth = {universe % 2 ? 0.5 : -0.5, 0.5, 0, -1}};
      for (std::size_t p = 0; p < 4; ++p) c.predicted[p] = c.truth[p] + off;
      cubes.push_back(c);
    }
  const auto s = score_one(cubes);
  CHECK(s.universes == 4);
  CHECK(s.cubes == 8);
  CHECK(s.cube[0].error == doctest::Approx(3 * (0.09 + 0.01) / 2));
  CHECK(s.average[0].error == doctest::Approx(3 * 0.01));
  CHECK(s.scaled[0].error == doctest::Approx(0));  // off by the same everywhere
  CHECK(s.nothing[0].error == doctest::Approx(3 * 0.25));
  CHECK(s.average[0].r2 == doctest::Approx(1 - 0.01 / 0.25));
  CHECK(s.average[1].r2 == 0);  // of truths that do not differ
  CHECK(s.cube[0].wide.low == doctest::Approx(s.cube[0].wide.high));
  CHECK(mean_of(s.nothing).error == doctest::Approx(3 * (0.25 + 0.25 + 0 + 1) / 4));

  CHECK_THROWS_AS(score_one({}), Error);
  CHECK_THROWS_AS(score_one({cubes.begin(), cubes.begin() + 6}), Error);  // three universes
  CHECK_THROWS_AS(score(Trainings{cubes, draw_cubes({.universes = 4, .cubes = 2})}, 1), Error);
  cubes[1].truth[2] = 0.1;
  CHECK_THROWS_AS(score_one(cubes), Error);
}

TEST_CASE("sample_size: slopes are fitted to all other universes") {
  const auto cubes = draw_cubes({.universes = 6, .slope = 0.5, .noise = 0.5});
  double squares = 0;
  for (const auto& left_out : cubes) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const auto& c : cubes) {
      if (c.universe == left_out.universe) continue;
      n += 1, x += c.predicted[0], y += c.truth[0];
      xx += c.predicted[0] * c.predicted[0], xy += c.predicted[0] * c.truth[0];
    }
    const double slope = (xy - x * y / n) / (xx - x * x / n), offset = (y - slope * x) / n;
    squares += std::pow(offset + slope * left_out.predicted[0] - left_out.truth[0], 2);
  }
  CHECK(score_one(cubes).scaled[0].error == doctest::Approx(3 * squares / 6));
}

TEST_CASE("sample_size: copies of a universe's cube do not make the interval narrower") {
  const auto single = draw_cubes({.universes = 60});
  std::vector<CubePrediction> copies;
  for (const auto& cube : single) copies.insert(copies.end(), 64, cube);
  const auto one = score_one(single), many = score_one(copies);
  for (std::size_t p = 0; p < 4; ++p) {
    CHECK(many.cube[p].error == doctest::Approx(one.cube[p].error));
    CHECK(many.cube[p].wide.low == doctest::Approx(one.cube[p].wide.low));
    CHECK(many.cube[p].wide.high == doctest::Approx(one.cube[p].wide.high));
    CHECK(many.cube[p].central.high == doctest::Approx(one.cube[p].central.high));
    CHECK(one.cube[p].wide.low < one.cube[p].central.low);
    CHECK(one.cube[p].central.high < one.cube[p].wide.high);
  }
}

TEST_CASE("sample_size: intervals hold the error as often as they say") {
  const double error = 3 * 0.04;
  int wide = 0, central = 0, all = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const auto s = score_one(draw_cubes({.seed = seed, .universes = 100, .cubes = 2, .noise = 0.2}), 300);
    for (const auto& of : s.cube) {
      wide += of.wide.low < error && error < of.wide.high ? 1 : 0;
      central += of.central.low < error && error < of.central.high ? 1 : 0;
      ++all;
    }
  }
  CHECK(wide > 0.90 * all);
  CHECK(wide < 0.98 * all);
  CHECK(central > 0.61 * all);
  CHECK(central < 0.74 * all);
}

TEST_CASE("sample_size: averaging does not undo that predictions shrink, a slope of other universes does") {
  // The best answer to truth + noise of variance 3 is a tenth of it; 64 of them know the truth to a variance of 3 / 64.
  const auto s = score_one(draw_cubes({.universes = 400, .cubes = 64, .slope = 0.1, .noise = std::sqrt(3.0)}));
  const double best = 1 / (1 + 64.0 / 9);
  for (std::size_t p = 0; p < 4; ++p) {
    CHECK(s.cube[p].error == doctest::Approx(0.9).epsilon(0.1));
    CHECK(s.average[p].error > 0.7);
    CHECK(s.scaled[p].error == doctest::Approx(best).epsilon(0.25));
  }
  // Answers that say nothing do not come out better for it.
  auto constant = draw_cubes({.universes = 50});
  for (auto& cube : constant) cube.predicted = {0.2, 0.2, 0.2, 0.2};
  const auto blind = score_one(constant);
  for (std::size_t p = 0; p < 4; ++p) CHECK(blind.scaled[p].r2 <= 0);
}

TEST_CASE("sample_size: trainings are averaged in their errors, and their spread widens factors") {
  const auto a = draw_cubes({.universes = 50, .noise = 0.1});
  auto b = a;
  for (auto& cube : b)
    for (std::size_t p = 0; p < 4; ++p) cube.predicted[p] = cube.truth[p] + 2 * (cube.predicted[p] - cube.truth[p]);
  const auto one = score_one(a), both = score(Trainings{a, b}, 7);
  const double e = one.cube[0].error;
  CHECK(both.cube[0].error == doctest::Approx(2.5 * e));
  CHECK(both.cube[0].of_training[1] == doctest::Approx(4 * e));
  CHECK(both.cube[0].spread == doctest::Approx(3 * e / std::sqrt(2)));
  const auto same = factor(one.cube[0], one.cube[0], Of::same_trainings);  // in pairs: no difference at all
  CHECK(same.value == doctest::Approx(1));
  CHECK(same.wide.low == doctest::Approx(1));
  CHECK(same.wide.high == doctest::Approx(1));
  const auto spread = factor(both.cube[0], one.cube[0], Of::other_trainings);
  CHECK(spread.value == doctest::Approx(2.5));
  CHECK(spread.wide.high == doctest::Approx(2.5 * std::exp(12.706 * 0.6)).epsilon(1e-3));
  // Trainings that differ alike in both scores say nothing of the factor between these.
  const auto paired = factor(both.cube[0], both.cube[0], Of::same_trainings);
  CHECK(paired.wide.high == doctest::Approx(1));
  // Welch's, of three trainings with relative standard errors of 0.3 and 0.1: (0.09 + 0.01)^2 / (0.09^2 + 0.01^2) * 2 = 2.4.
  const auto of_three = [&](double relative) {
    Score s{.error = 1, .of_training = {1, 1, 1}, .spread = relative * std::sqrt(3)};
    s.resampled.assign(10, 1);
    return s;
  };
  CHECK(factor(of_three(0.3), of_three(0.1), Of::other_trainings).wide.high ==
        doctest::Approx(std::exp(4.303 * std::sqrt(0.1))).epsilon(1e-3));
  CHECK(factor(of_three(0.1), of_three(0.1), Of::other_trainings).wide.high ==
        doctest::Approx(std::exp(2.776 * std::sqrt(0.02))).epsilon(1e-3));
}

TEST_CASE("sample_size: verdicts come from the numbers") {
  // Eight small cubes with a noise each; the large one knows their mean.
  const Drawn small{.universes = 150, .cubes = 8, .slope = 0.4, .noise = 0.7};
  const auto cubes = draw_cubes(small);
  std::vector<CubePrediction> large;
  for (std::int64_t u = 0; u < small.universes; ++u) {
    auto c = cubes[static_cast<std::size_t>(8 * u)];
    c.predicted = {};
    for (std::size_t i = 0; i < 8; ++i)
      for (std::size_t p = 0; p < 4; ++p)
        c.predicted[p] += 0.8 / 0.4 / 8 * cubes[static_cast<std::size_t>(8 * u) + i].predicted[p];
    large.push_back(c);
  }
  const auto verdict = [&](const std::vector<CubePrediction>& best, std::size_t p = 0) {
    return find({.box = 16, .sizes = {result_of(8, {cubes}), result_of(16, {best})}})[p].verdict;
  };
  CHECK(verdict(large) == Verdict::volume);
  CHECK(verdict(large, 4) == Verdict::volume);
  auto other = large;
  for (auto& c : other)  // nearer to the truth than any average
    for (std::size_t p = 0; p < 4; ++p) c.predicted[p] = c.truth[p] + 0.2 * (c.predicted[p] - c.truth[p]);
  CHECK(verdict(other) == Verdict::size);
  for (auto& c : other) c.predicted = {};
  CHECK(verdict(other) == Verdict::nothing_learned);
  CHECK(verdict(draw_cubes({.universes = 150, .slope = 0.4, .noise = 0.7})) == Verdict::no_gain);
  std::vector<CubePrediction> half;
  for (std::size_t i = 0; i < cubes.size(); ++i)
    if (i % 2) half.push_back(cubes[i]);
  const auto less = find({.box = 16, .sizes = {result_of(8, {half}), result_of(16, {large})}});
  CHECK(less[1].verdict == Verdict::other_volume);

  const Results results{.box = 16, .sizes = {result_of(8, {cubes}), result_of(16, {large})}};
  const auto findings = find(results);
  CHECK(findings.size() == 5);
  CHECK(findings[0].lower);
  CHECK_FALSE(findings[0].may_reach);
  CHECK(findings[0].over_regression.value == doctest::Approx(0.25));
  CHECK(findings[0].over_regression.wide.high == doctest::Approx(0.25));
  CHECK(findings[0].regression_gain.value == doctest::Approx(findings[0].gain.value));
  CHECK(sentences(results)[7].find("by the network than by the regression at 16^3: Omega_m, ") ==
        std::string("Predicted better ").size());
  CHECK(findings[0].remaining.value == doctest::Approx(1).epsilon(1e-6));
  CHECK(findings[0].floor_allows == (results.sizes[0].floor_cube[0] >= 10 * results.sizes[1].floor_cube[0]));
  CHECK(sentences(results).size() == 9);
  CHECK(sentences(results)[1].find("the volume that the prediction sees and not the size of a sample") != std::string::npos);
  CHECK_THROWS_AS(find({.box = 16, .sizes = {result_of(8, {cubes})}}), Error);
}

TEST_CASE("sample_size: files of a report hold the same numbers") {
  const testing::Folder folder;
  const Trainings trainings{draw_cubes({.universes = 20, .cubes = 8, .noise = 0.5}),
                            draw_cubes({.universes = 20, .cubes = 8, .slope = 0.9, .noise = 0.5})};
  Results results{.box = 16, .sizes = {result_of(8, trainings), result_of(16, {draw_cubes({.universes = 20, .noise = 0.2})})}};
  CHECK(table(results).find(" -      -") != std::string::npos);  // of what was learned from nothing is known
  const std::vector learned{draw_cubes({.universes = 7, .cubes = 8, .noise = 0.1}),
                            draw_cubes({.universes = 7, .cubes = 8, .noise = 0.2})};
  results.sizes[0].training = score(learned, 3), results.sizes[0].regression_training = score({&learned[0], 1}, 3);
  const double training_error = results.sizes[0].training->cube[1].error;
  const auto text = write_report(results, folder.path);
  CHECK(text.find("sigma_8") != std::string::npos);
  CHECK(text.find(fmt::format(" {:.4f}  {:.3f} ", training_error, std::sqrt(training_error))) != std::string::npos);
  CHECK(folder.files() == report_files.size());
  std::ifstream csv_file(folder / report_files[0]), json_file(folder / report_files[1]);
  std::size_t lines = 0, commas = 0;
  for (std::string line; std::getline(csv_file, line); ++lines)
    commas += static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
  CHECK(lines == 1 + (2 + 1) * 2 * 4 * 4);
  CHECK(commas == lines * 18);
  const auto document = nlohmann::json::parse(json_file);
  const auto& parameter = document["sizes"][0]["parameters"]["sigma_8"];
  CHECK(parameter["cube"]["mse"].get<double>() == doctest::Approx(results.sizes[0].scores.cube[1].error));
  CHECK(parameter["cube"]["rmse"].get<double>() == doctest::Approx(std::sqrt(results.sizes[0].scores.cube[1].error)));
  CHECK(parameter["training"]["cube"]["mse"].get<double>() == doctest::Approx(training_error));
  CHECK(parameter["regression"]["training"]["average"]["mse"].get<double>() ==
        doctest::Approx(results.sizes[0].regression_training->average[1].error));
  CHECK_FALSE(document["sizes"][1]["parameters"]["sigma_8"].contains("training"));
  CHECK(parameter["cube"]["of_training"].size() == 2);
  CHECK(parameter["regression"]["cube"]["mse"].get<double>() ==
        doctest::Approx(4 * parameter["cube"]["of_training"][0].get<double>()));
  CHECK(parameter["floor_box"].get<double>() == doctest::Approx(floor_variance(16, 4)[1]));
  CHECK(document["findings"].size() == 5);
  CHECK(document["sentences"].size() == 9);
  CHECK_THROWS_AS(evaluate(8, 16, 4, trainings, draw_cubes({.universes = 20}), 3), Error);  // other cubes
  // One size alone has nothing to be compared with.
  CHECK(write_report({.box = 16, .sizes = {results.sizes[0]}}, folder.path).find("Omega_m") != std::string::npos);
}

}  // namespace mpigrad::sample_size
