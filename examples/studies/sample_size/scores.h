#pragma once
// How well parameters are predicted from the cubes of universes, and how far that can be known from so many universes.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/studies/sample_size/floor.h"

namespace mpigrad::sample_size {

// Of one cube, in units of u in [-1, 1].
struct CubePrediction {
  std::int64_t universe = 0;
  std::array<double, 4> predicted{}, truth{};
};

struct Interval {
  double low = 0, high = 0;
};

// The error of one parameter: the mean squared error of u as a fraction of the prior's variance, 1 for who always answers 0.
struct Score {
  double error = 0;                   // mean over the trainings
  std::vector<double> of_training{};  // the error of each
  double spread = 0;                  // standard deviation between trainings; 0 of one
  double r2 = 0;                      // 1 - mean squared error / variance of the truth in these universes; 0 where that is 0
  Interval central{}, wide{};         // 16th to 84th and 2.5th to 97.5th percentile of the error, universes drawn anew
  std::vector<double> resampled{};    // the error of each draw; the same draws for the same universes and seed
};
using ParameterScores = std::array<Score, 4>;

struct Scores {
  std::int64_t universes = 0, cubes = 0;  // in all
  // Of a cube, over all cubes.
  ParameterScores cube{};
  // Of the average of the predictions from a universe's cubes.
  ParameterScores average{};
  // Of that average times a slope plus an offset. One prediction from little information stays close to the mean of all
  // universes, and averaging does not undo that. Slope and offset, one each per parameter and training, are those of the
  // regression of the truth on the averages of all other universes.
  ParameterScores scaled{};
  // Of answering 0, the prior's mean, for the same universes: 1 but for the chance of their draw.
  ParameterScores nothing{};
};

// Errors of fewer universes have no meaning.
inline constexpr std::int64_t least_universes = 4;

// trainings: each one's predictions for the same universes, in any order. Intervals are a bootstrap of universes: the cubes of
// one share its parameters and its modes, and drawing cubes would count them as independent. They hold the trainings fixed, whose
// difference is `spread`. Errors: no predictions, fewer than least_universes, cubes of one universe with unlike truths, trainings
// with unlike universes.
Scores score(std::span<const std::vector<CubePrediction>> trainings, std::uint64_t seed, std::int64_t resamples = 1000);

// The mean over the parameters, as if it were one more.
Score mean_of(const ParameterScores& scores);

// How many times the error `from` is that of `to`.
struct Factor {
  double value = 0;
  Interval wide{};  // 2.5th to 97.5th percentile
};
enum class Of : std::uint8_t { same_trainings, other_trainings };
// Universes by their draws, in pairs where both scores are of the same universes and seed; and, where there are several
// trainings, the difference between these, by Student's t, added in quadrature in logarithms: of two scores of the same trainings
// in pairs, else after Welch (1947), with the freedom of Satterthwaite's, rounded down.
Factor factor(const Score& from, const Score& to, Of of);

}  // namespace mpigrad::sample_size
