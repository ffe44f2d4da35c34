#pragma once
// The parts of the program `cosmoflow`.

#include <optional>

#include "comm/communicator.h"
#include "examples/trainer/supervised.h"
#include "models/data/sources/hdf5.h"
#include "models/networks/cosmoflow.h"
#include "models/train/metrics.h"

namespace mpigrad::cosmoflow {

struct Options : trainer::Options {
  std::string variant = "hybrid";
  double test_fraction = 0.15;
};

CosmoFlowOptions network_options(const Options& options, std::int64_t targets);
void require_cubes(const Options& options, const data::Source& source);

// Each returns the exit code. `evaluate` is --epochs 0.
int describe(const Communicator& world, const Options& options);
int train(const Communicator& world, const Options& options);
int evaluate(const Communicator& world, const Options& options);

// One line of the curves.
struct Epoch {
  std::int64_t epoch = 0;
  double train_loss = 0, test_loss = 0;
};

struct Results {
  std::vector<std::string> names;       // of the targets
  std::vector<RegressionScore> scores;  // on the test set
  Predictions predictions;              // of the test set
  std::string mean_of;                  // whose mean the scores are held against
  std::vector<Epoch> epochs;
};

// What somebody would predict who has seen no volume.
struct TargetMeans {
  std::vector<std::string> names;
  std::vector<double> values;  // one for each name
};
// Of some samples; the ranks share the reading. Collective.
TargetMeans target_means(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples);
// Files of weights remember those of the training set.
inline constexpr const char* means_note = "target means";
std::string to_note(const TargetMeans& means);
// None: the file is older than such notes. Error: a note that to_note did not write.
std::optional<TargetMeans> means_of(const std::string& weights, const CheckpointInfo& info);

// The names of the test samples without their folders, which may be moved, as a fingerprint.
std::string fingerprint_of(const data::Source& source, const std::vector<std::int64_t>& samples);

inline constexpr const char *predictions_file = "predictions.csv", *picture_file = "cosmoflow.png";
using trainer::summary_file;
// Fills in the scores, against the means of `of`; none: of the predicted samples themselves.
void score(Results& results, const std::vector<double>& means, const std::string& of);
// Writes predictions, picture and summary, and prints the summary or the scores. `run` is what the summary begins with,
// the last lines are `text` and which of `files` there are. Of one rank.
void report(const Options& options, const trainer::Outputs& out, const Results& results, const data::Source& source,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text);

// Slices of the first test sample, predicted against true values, loss curves.
void draw(const std::filesystem::path& path, const Results& results, const data::Source& source);

}  // namespace mpigrad::cosmoflow
