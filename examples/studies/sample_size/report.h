#pragma once
// What the study says: tables, a picture and plain sentences, all computed from the scores.

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
  std::int64_t cubes = 0;  // of a universe
  Scores scores{};
  Scores regression{};  // of a ridge regression on the cubes' power spectra and one-point numbers
  std::optional<Scores> training{}, regression_training{};  // both, of the universes that they were fitted to, where known
  std::array<double, 4> floor_cube{}, floor_box{};          // of a Gaussian field in the cube's volume and in the box's
};

struct Results {
  std::int64_t box = 0;             // cells per side of a universe
  double cell = 4;                  // Mpc/h
  std::vector<SizeResult> sizes{};  // ascending
};

// Scores and floors of one size. trainings: as for score(), on all channels of a universe; regression: of the same cubes; the
// same seed for all sizes, so that their draws of universes are in pairs.
SizeResult evaluate(std::int64_t size, std::int64_t box, double cell, std::span<const std::vector<CubePrediction>> trainings,
                    const std::vector<CubePrediction>& regression, std::uint64_t seed);

// What Oyama et al. 2020 ("The Case for Strong Scaling in Deep Learning: Training Large 3D CNNs with Hybrid Parallelism",
// arXiv:2007.12856) report of CosmoFlow: an order of magnitude in the mean squared error.
struct Claim {
  std::int64_t from = 128, to = 512;  // cells per side
  double factor = 10;
};
inline constexpr Claim published{};

// What the averages of small cubes say about the large one, where both have seen the same volume.
enum class Verdict {
  volume,           // a larger cube is better, and averages are as good: what counts is the volume that a prediction sees
  size,             // the larger cube is better than averages, too
  undecided,        // the interval is too wide for either
  no_gain,          // larger cubes are not predicted better
  nothing_learned,  // not even the largest ones are predicted better than by 0, the prior's mean
  other_volume,     // the small cubes of a universe are not as much volume as the large ones
};
const char* name_of(Verdict verdict);

// Of one parameter, or of the mean over all four.
struct Finding {
  std::string name;
  Factor gain{};              // error of the smallest cubes over that of the largest
  Factor averaging{};         // error of the smallest cubes over that of their scaled averages
  Factor remaining{};         // that of these averages over that of the largest cubes', scaled as well
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
// Averages count as good as the large cube where their error is, with 97.5 %, at most so many times its own.
inline constexpr double as_good = 1.25;

// One of each parameter, then that of their mean. Errors: fewer than two sizes.
std::vector<Finding> find(const Results& results);
// The same in words, with the published claim beside them; the last ones sum up.
std::vector<std::string> sentences(const Results& results);

std::string table(const Results& results);
std::string csv(const Results& results);
nlohmann::ordered_json to_json(const Results& results);
// Error against the side of a cube, one panel for each parameter.
void draw(const Results& results, const std::filesystem::path& path, bool overwrite);

// Files of write_report.
inline constexpr std::array<const char*, 3> report_files{"sample_size.csv", "sample_size.json", "sample_size.png"};
// All of them in `folder`, which is there, over what is there; returns the table and the sentences, for the screen.
std::string write_report(const Results& results, const std::filesystem::path& folder);

}  // namespace mpigrad::sample_size
