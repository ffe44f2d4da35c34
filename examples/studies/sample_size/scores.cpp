#include "examples/studies/sample_size/scores.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "framework/base/error.h"
#include "framework/tensor/random.h"
#include "models/trainer/tool/quantile.h"

namespace mpigrad::sample_size {
namespace {

double square(double x) { return x * x; }
// A prediction without error also gets a finite, very large factor.
double logarithm(double error) { return std::log(std::max(error, 1e-300)); }

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double variance(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double centre = mean(values);
  double sum = 0;
  for (const double value : values) sum += square(value - centre);
  return sum / static_cast<double>(values.size() - 1);
}

// The sums of one training's predictions for one universe.
struct Sums {
  double cubes = 0;
  std::array<double, 4> truth{}, predicted{}, squares{};  // predicted: sum; squares: sum of squared errors of the cubes
};
using Universes = std::map<std::int64_t, Sums>;

Universes sums_of(const std::vector<CubePrediction>& predictions) {
  Universes universes;
  for (const auto& cube : predictions) {
    auto& sums = universes[cube.universe];
    for (std::size_t p = 0; p < 4; ++p) {
      require(std::isfinite(cube.predicted[p]) && std::isfinite(cube.truth[p]),
              "[scores] universe {}: predictions and truths are finite, got {} for {}", cube.universe, cube.predicted[p],
              cube.truth[p]);
      require(sums.cubes == 0 || sums.truth[p] == cube.truth[p], "[scores] universe {}: its cubes share one truth, got {} and {}",
              cube.universe, sums.truth[p], cube.truth[p]);
      sums.truth[p] = cube.truth[p];
      sums.predicted[p] += cube.predicted[p];
      sums.squares[p] += square(cube.predicted[p] - cube.truth[p]);
    }
    ++sums.cubes;
  }
  return universes;
}

// Residuals of the regression of y on x, each from the line through all other points: the ordinary residual over 1 - leverage.
std::vector<double> left_out_residuals(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  const double mean_x = mean(x), mean_y = mean(y), spread = variance(x) * (n - 1);
  double product = 0;
  for (std::size_t i = 0; i < x.size(); ++i) product += (x[i] - mean_x) * (y[i] - mean_y);
  const bool flat = spread <= 1e-24 * (1 + n * mean_x * mean_x);  // equal predictions: only an offset
  std::vector<double> residuals;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double leverage = 1 / n + (flat ? 0 : square(x[i] - mean_x) / spread);
    const double residual = y[i] - mean_y - (flat ? 0 : product / spread * (x[i] - mean_x));
    // Leverage 1: all other points have the same x, and the best line through them is their mean.
    residuals.push_back(leverage < 1 - 1e-9 ? residual / (1 - leverage) : (y[i] - mean_y) * n / (n - 1));
  }
  return residuals;
}

// A mean squared error as a ratio of sums over universes, for each training.
struct Ratio {
  std::vector<std::vector<double>> above{};  // [training][universe]
  std::vector<double> below{};               // [universe]
};

double error_of(const std::vector<double>& above, const std::vector<double>& below) {
  return mean(above) / mean(below) / prior_variance;
}

void set_intervals(Score& score) {
  score.spread = std::sqrt(variance(score.of_training));
  score.central = {tool::quantile(score.resampled, 0.16), tool::quantile(score.resampled, 0.84)};
  score.wide = {tool::quantile(score.resampled, 0.025), tool::quantile(score.resampled, 0.975)};
}

Score score_of(const Ratio& ratio, double truth_variance, std::span<const std::int32_t> draws) {
  Score score;
  const auto n = ratio.below.size();
  std::vector<double> together(n);
  for (const auto& above : ratio.above) {
    score.of_training.push_back(error_of(above, ratio.below));
    for (std::size_t i = 0; i < n; ++i) together[i] += above[i] / static_cast<double>(ratio.above.size());
  }
  score.error = error_of(together, ratio.below);
  score.r2 = truth_variance > 0 ? 1 - score.error * prior_variance / truth_variance : 0;
  for (std::size_t begin = 0; begin < draws.size(); begin += n) {
    double above = 0, below = 0;
    for (const auto i : draws.subspan(begin, n)) {
      above += together[static_cast<std::size_t>(i)];
      below += ratio.below[static_cast<std::size_t>(i)];
    }
    score.resampled.push_back(above / below / prior_variance);
  }
  set_intervals(score);
  return score;
}

void check_same_universes(const Universes& first, const Universes& other) {
  require(first.size() == other.size(), "[scores] all trainings predict the same universes, got {} and {} of them", first.size(),
          other.size());
  for (auto a = first.begin(), b = other.begin(); a != first.end(); ++a, ++b)
    require(
        a->first == b->first && a->second.truth == b->second.truth && a->second.cubes == b->second.cubes,
        "[scores] all trainings predict the same cubes of the same universes, got {} cubes of universe {} and {} of universe {}",
        a->second.cubes, a->first, b->second.cubes, b->first);
}

// Student's t of 97.5 %; between tabulated degrees of freedom the value of the lower one, which is larger.
double student(double freedom) {
  constexpr std::array<double, 10> table{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228};
  const auto whole = static_cast<std::size_t>(std::max(1.0, freedom + 1e-9));
  return whole <= table.size() ? table[whole - 1] : 1.960 + 2.5 / static_cast<double>(whole);
}

// The variance of the logarithm of the mean of the trainings' errors.
double training_variance(const Score& score) {
  const auto n = static_cast<double>(score.of_training.size());
  return n > 1 && score.error > 0 ? square(score.spread / score.error) / n : 0;
}

// Half of the interval of ln(from / to) due to the difference between trainings.
double of_trainings(const Score& from, const Score& to, Of of) {
  if (of == Of::same_trainings) {
    require(from.of_training.size() == to.of_training.size(), "[scores] the same trainings are as many, got {} and {}",
            from.of_training.size(), to.of_training.size());
    const auto n = from.of_training.size();
    if (n < 2) return 0;
    std::vector<double> logarithms;
    for (std::size_t i = 0; i < n; ++i) logarithms.push_back(logarithm(from.of_training[i]) - logarithm(to.of_training[i]));
    return student(static_cast<double>(n - 1)) * std::sqrt(variance(logarithms) / static_cast<double>(n));
  }
  const double a = training_variance(from), b = training_variance(to);
  if (a + b == 0) return 0;
  const auto part = [](double v, const Score& s) { return v > 0 ? v * v / (static_cast<double>(s.of_training.size()) - 1) : 0; };
  return student(square(a + b) / (part(a, from) + part(b, to))) * std::sqrt(a + b);
}

}  // namespace

Scores score(std::span<const std::vector<CubePrediction>> trainings, std::uint64_t seed, std::int64_t resamples) {
  require(!trainings.empty() && resamples > 0, "[scores] there is at least one training and one draw, got {} and {}",
          trainings.size(), resamples);
  std::vector<Universes> runs;
  for (const auto& predictions : trainings) {
    runs.push_back(sums_of(predictions));
    check_same_universes(runs.front(), runs.back());
  }
  const auto n = runs.front().size();
  require(static_cast<std::int64_t>(n) >= least_universes, "[scores] errors of universes need at least {} of them, got {}",
          least_universes, n);

  std::vector<std::int32_t> draws(n * static_cast<std::size_t>(resamples));
  const Philox random{.key = seed};
  for (std::size_t i = 0; i < draws.size(); ++i) draws[i] = static_cast<std::int32_t>(random.below(i, n));

  Scores scores;
  scores.universes = static_cast<std::int64_t>(n), scores.cubes = static_cast<std::int64_t>(trainings.front().size());
  for (std::size_t p = 0; p < 4; ++p) {
    std::vector<double> truth, cubes;
    for (const auto& [universe, sums] : runs.front()) truth.push_back(sums.truth[p]), cubes.push_back(sums.cubes);
    Ratio cube{.below = cubes}, average{.below = std::vector<double>(n, 1)}, scaled = average, nothing = average;
    for (const auto& run : runs) {
      std::vector<double> predicted;
      auto& squares = cube.above.emplace_back();
      for (const auto& [universe, sums] : run) {
        squares.push_back(sums.squares[p]);
        predicted.push_back(sums.predicted[p] / sums.cubes);
      }
      auto& errors = average.above.emplace_back();
      for (std::size_t i = 0; i < n; ++i) errors.push_back(square(predicted[i] - truth[i]));
      auto& zeros = nothing.above.emplace_back();
      for (std::size_t i = 0; i < n; ++i) zeros.push_back(square(truth[i]));
      auto& residuals = scaled.above.emplace_back(left_out_residuals(predicted, truth));
      for (auto& residual : residuals) residual = square(residual);
    }
    const double of_truth = variance(truth) * static_cast<double>(n - 1) / static_cast<double>(n);
    scores.cube[p] = score_of(cube, of_truth, draws);
    scores.average[p] = score_of(average, of_truth, draws);
    scores.scaled[p] = score_of(scaled, of_truth, draws);
    scores.nothing[p] = score_of(nothing, of_truth, draws);
  }
  return scores;
}

Score mean_of(const ParameterScores& scores) {
  Score result;
  result.of_training.resize(scores[0].of_training.size());
  result.resampled.resize(scores[0].resampled.size());
  for (const auto& score : scores) {
    result.error += score.error / 4;
    result.r2 += score.r2 / 4;
    for (std::size_t i = 0; i < result.of_training.size(); ++i) result.of_training[i] += score.of_training[i] / 4;
    for (std::size_t i = 0; i < result.resampled.size(); ++i) result.resampled[i] += score.resampled[i] / 4;
  }
  set_intervals(result);
  return result;
}

Factor factor(const Score& from, const Score& to, Of of) {
  require(from.resampled.size() == to.resampled.size(), "[scores] both errors have as many draws, got {} and {}",
          from.resampled.size(), to.resampled.size());
  require(from.error > 0 && to.error > 0, "[scores] factors are between errors above 0, got {} and {}", from.error, to.error);
  const double centre = std::log(from.error / to.error);
  std::vector<double> draws;
  for (std::size_t i = 0; i < from.resampled.size(); ++i)
    draws.push_back(logarithm(from.resampled[i]) - logarithm(to.resampled[i]));
  const double more = of_trainings(from, to, of);
  const double below = std::hypot(std::max(0.0, centre - tool::quantile(draws, 0.025)), more);
  const double above = std::hypot(std::max(0.0, tool::quantile(draws, 0.975) - centre), more);
  return {std::exp(centre), {std::exp(centre - below), std::exp(centre + above)}};
}

}  // namespace mpigrad::sample_size
