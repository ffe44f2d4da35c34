#pragma once
// Scores of parameters predicted from the cubes of universes, and the statistical errors of these scores.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/studies/sample_size/floor.h"

namespace mpigrad::sample_size {

// The prediction from one cube, in units of u in [-1, 1].
struct CubePrediction {
  std::int64_t universe = 0;
  std::array<double, 4> predicted{}, truth{};
};

struct Interval {
  double low = 0, high = 0;
};

// The error of one parameter: the mean squared error of u as a fraction of the prior's variance; 1 for always answering 0.
struct Score {
  double error = 0;                   // mean over the trainings
  std::vector<double> of_training{};  // the error of each
  double spread = 0;                  // standard deviation between trainings; 0 for one training
  double r2 = 0;                      // 1 - mean squared error / variance of the truth in these universes; 0 if that is 0
  Interval central{}, wide{};         // 16th to 84th and 2.5th to 97.5th percentile of the error, universes resampled
  std::vector<double> resampled{};    // the error of each resampling; the same for equal universes and seed
};
using ParameterScores = std::array<Score, 4>;

struct Scores {
  std::int64_t universes = 0, cubes = 0;  // in total
  // Scores of single cubes.
  ParameterScores cube{};
  // Scores of the average of the predictions from a universe's cubes.
  ParameterScores average{};
  // Scores of that average times a slope plus an offset. A prediction from little information stays close to the mean of all
  // universes, and averaging does not undo that. Slope and offset, one for each parameter and training, are those of the
  // regression of the truth on the averages of all other universes.
  ParameterScores scaled{};
  // Scores of always answering 0, the prior's mean, for the same universes: 1 except for sampling noise.
  ParameterScores nothing{};
};

// Scores of fewer universes are meaningless.
inline constexpr std::int64_t least_universes = 4;

// trainings: the predictions of each for the same universes, in any order. Intervals are a bootstrap over universes: the cubes of
// a universe share its parameters and its modes, and resampling cubes would count them as independent. They hold the trainings
// fixed; `spread` is the difference between trainings. Errors: no predictions, fewer than least_universes, cubes of one universe
// with different truths, trainings with different universes.
Scores score(std::span<const std::vector<CubePrediction>> trainings, std::uint64_t seed, std::int64_t resamples = 1000);

// The mean over the parameters, like a further parameter.
Score mean_of(const ParameterScores& scores);

// The ratio of the error `from` to the error `to`.
struct Factor {
  double value = 0;
  Interval wide{};  // 2.5th to 97.5th percentile
};
enum class Of : std::uint8_t { same_trainings, other_trainings };
// Resamples universes, paired if both scores are of the same universes and seed. If there are several trainings, the difference
// between them is added, by Student's t, in quadrature in logarithms: paired for two scores of the same trainings, else after
// Welch (1947), with Satterthwaite's degrees of freedom, rounded down.
Factor factor(const Score& from, const Score& to, Of of);

}  // namespace mpigrad::sample_size
