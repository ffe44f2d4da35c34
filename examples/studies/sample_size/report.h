#pragma once
// The results of the study: tables, a picture and plain sentences, all computed from the scores.

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "examples/studies/sample_size/scores.h"

namespace mpigrad::sample_size {

// The trainings on cubes of one size.
struct SizeResult {
  std::int64_t size = 0;   // cells per side of a cube
  std::int64_t cubes = 0;  // cubes in a universe
  Scores scores{};
  Scores regression{};  // ridge regression on the cubes' power spectra and one-point statistics
  std::optional<Scores> training{}, regression_training{};  // both, on the universes of the fit, if known
  std::array<double, 4> floor_cube{}, floor_box{};          // for a Gaussian field in the cube's and the box's volume
};

struct Results {
  std::int64_t box = 0;             // cells per side of a universe
  double cell = 4;                  // Mpc/h
  std::vector<SizeResult> sizes{};  // ascending
};

// Scores and floors of one size. trainings: as for score(), on all channels of a universe; regression: on the same cubes. Use the
// same seed for all sizes, so that their resampled universes are paired.
SizeResult evaluate(std::int64_t size, std::int64_t box, double cell, std::span<const std::vector<CubePrediction>> trainings,
                    const std::vector<CubePrediction>& regression, std::uint64_t seed);

// The claim of Oyama et al. 2020 ("The Case for Strong Scaling in Deep Learning: Training Large 3D CNNs with Hybrid Parallelism",
// arXiv:2007.12856) about CosmoFlow: an order of magnitude in the accuracy of predictions, taken as one of the mean squared
// error.
struct Claim {
  std::int64_t from = 128, to = 512;  // cells per side
  double factor = 10;
};
inline constexpr Claim published{};

// The comparison of averages over small cubes with the large cube, if both cover the same volume.
enum class Verdict {
  volume,           // a larger cube is better, and averages are as good: the volume counts
  size,             // the larger cube is better than averages, too
  undecided,        // the interval is too wide for either
  no_gain,          // larger cubes are not predicted better
  nothing_learned,  // not even the largest ones are predicted better than by 0, the prior's mean
  other_volume,     // the small cubes of a universe are not as much volume as the large ones
};
const char* name_of(Verdict verdict);

// The finding for one parameter, or for the mean over all four.
struct Finding {
  std::string name;
  Factor gain{};              // error of the smallest cubes over that of the largest
  Factor averaging{};         // error of the smallest cubes over that of their scaled averages
  Factor remaining{};         // error of these averages over that of the largest cubes, also scaled
  Factor regression_gain{};   // error of the regression on the smallest cubes over that on the largest
  Factor over_regression{};   // error of the network over that of the regression, of the largest cubes
  double floor_gain = 0;      // floor of the smallest cube over that of the largest
  double of_floor = 0;        // error of the largest cubes over their floor
  bool lower = false;         // the interval of `gain` is above 1
  bool reaches = false;       // `gain` reaches the published factor
  bool may_reach = false;     // the upper end of its interval does
  bool floor_allows = false;  // floor_gain does
  Verdict verdict = Verdict::undecided;
};
// Averages count as good as the large cube if their error is, with 97.5 % confidence, at most so many times its error.
inline constexpr double as_good = 1.25;

// A finding for each parameter, then one for their mean. Errors: fewer than two sizes.
std::vector<Finding> find(const Results& results);
// The findings as sentences, compared with the published claim; the last ones sum up.
std::vector<std::string> sentences(const Results& results);

std::string table(const Results& results);
std::string csv(const Results& results);
nlohmann::ordered_json to_json(const Results& results);
// Draws the error against the side of a cube, one panel for each parameter.
void draw(const Results& results, const std::filesystem::path& path, bool overwrite);

// Files of write_report.
inline constexpr std::array<const char*, 3> report_files{"sample_size.csv", "sample_size.json", "sample_size.png"};
// Writes all of them to `folder`, which must exist, replacing existing files; returns the table and the sentences, for printing.
std::string write_report(const Results& results, const std::filesystem::path& folder);

}  // namespace mpigrad::sample_size
