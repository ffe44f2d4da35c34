#pragma once
// The parts of the program `cosmoflow`.

#include <optional>

#include "comm/communicator.h"
#include "examples/trainers/cosmoflow/baseline.h"
#include "models/data/sources/hdf5.h"
#include "models/networks/cosmoflow.h"
#include "models/train/metrics.h"
#include "models/trainer/infer.h"
#include "models/trainer/supervised.h"

namespace mpigrad::cosmoflow {

struct TrainOptions : trainer::Options {
  std::string variant = "hybrid";
  std::int64_t filters = 0;  // of the first convolution; 0: the variant's
  bool transpositions = false;
  std::string last_layer = "fitted";  // of pyramid
  double test_fraction = 0.15;
};

CosmoFlowVariant variant_of(const std::string& name);

// evaluate and predict.
struct InferOptions : trainer::InferOptions {
  std::string group;  // of HDF5
};

CosmoFlowOptions network_options(const TrainOptions& options, std::int64_t targets);
// Cubes in any format; without `targets` those of HDF5 and TFRecord need not be there.
data::SourcePtr open_universes(const trainer::Options& options, const std::string& group, bool targets);
bool has_parameters(const data::Source& source);

// Each returns the exit code.
int describe(const Communicator& world, const TrainOptions& options);
int train(const Communicator& world, const TrainOptions& options);
int infer(const Communicator& world, const InferOptions& options);  // evaluate and predict

// One line of the curves.
struct Epoch {
  std::int64_t epoch = 0;
  double train_loss = 0, test_loss = 0;
};

struct Results {
  std::vector<std::string> names;       // of the targets
  std::vector<RegressionScore> scores;  // on the test set; none: nobody knows the targets
  Predictions predictions;              // of the test set
  std::string mean_of;                  // whose mean the scores are held against
  BaselinePredictions spectrum;         // of the test set, by the regression on power spectra
  std::vector<double> spectrum_mse;     // one for each target; none: there is no such regression
  std::vector<Epoch> epochs;
  // physPar = offset + scale unitPar, where that is known, else empty.
  std::vector<double> offset{}, scale{};
};

// What somebody would predict who has seen no volume, and what the numbers mean.
struct Targets {
  std::vector<std::string> names;
  std::vector<double> means;              // one for each name
  std::vector<double> offset{}, scale{};  // see Results
};
// Of some samples; the ranks share the reading. Collective.
Targets targets_of(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples);
// Files of weights remember those of the training set.
inline constexpr const char* targets_note = "target means";
std::string to_note(const Targets& targets);
// None: the file is older than such notes. Error: a note that to_note did not write.
std::optional<Targets> targets_of(const std::string& weights, const CheckpointInfo& info);
inline constexpr trainer::SplitNotes split_notes{
    .samples = "samples", .fraction = "test fraction", .seed = "seed", .kept = "test samples"};

inline constexpr const char *predictions_file = "predictions.csv", *picture_file = "cosmoflow.png";
using trainer::summary_file;
// Fills in the scores, against the means of `of` (none: of the predicted samples themselves) and against the regression.
void score(Results& results, const std::vector<double>& means, const std::string& of);
// Writes predictions, picture and summary, and prints the summary or a table. `run` is what the summary begins with, the last
// lines are `text` and which of `files` there are. Of one rank.
void report(const trainer::Options& options, const trainer::Outputs& out, const Results& results, const data::Source& source,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text);

// Slices of the first test sample, predicted against true values, loss curves; without true values slices of the first samples
// with what is predicted.
void draw(const std::filesystem::path& path, const Results& results, const data::Source& source);

}  // namespace mpigrad::cosmoflow
