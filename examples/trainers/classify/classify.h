#pragma once
// The parts of the program `classify`.

#include <nlohmann/json_fwd.hpp>

#include "comm/communicator.h"
#include "examples/trainers/classify/network.h"
#include "models/train/metrics.h"
#include "models/trainer/infer.h"
#include "models/trainer/samples.h"
#include "models/trainer/supervised.h"

namespace mpigrad::classify {

// What a trained network is, and what it tells apart or predicts: the weights' file remembers it.
struct Recipe {
  std::int64_t filters = 16, classes = 2, channels = 1;
  bool full_resolution = false;
  std::vector<std::int64_t> extents{};     // D, H, W that it was trained on
  std::string label;                       // what the labels were called
  std::vector<std::string> class_names{};  // where the classes were folders, else none
  // Numbers that are predicted in place of classes. The network's outputs are (target - mean) / deviation, by the mean and the
  // standard deviation of the training samples.
  std::vector<std::string> targets{};
  std::vector<double> means{}, deviations{};

  bool regression() const { return !targets.empty(); }
  std::int64_t outputs() const { return regression() ? static_cast<std::int64_t>(targets.size()) : classes; }
};
inline constexpr const char* recipe_note = "classify";
std::string to_note(const Recipe& recipe);
// Error: the file has no such note, or one that to_note did not write.
Recipe recipe_of(const std::string& weights, const CheckpointInfo& info);

struct TrainOptions : trainer::Options {
  trainer::SampleOptions source{};
  // Groups of the data (of HDF5, .npz or CIFAR), unless the validation samples are other data or a part of the data.
  std::string train_group = "train", validation_group = "val", validation_data, validation_targets;
  double validation_fraction = 0;
  std::uint64_t split_seed = 1;
  Recipe recipe{};
};

// evaluate and predict.
struct InferOptions : trainer::InferOptions {
  trainer::SampleOptions source{};
};

NetworkOptions network_options(const Recipe& recipe);
NetworkOptions network_options(const TrainOptions& options, const Recipe& recipe);

// Each returns the exit code.
int describe(const Communicator& world, const TrainOptions& options);
int train(const Communicator& world, const TrainOptions& options);
int infer(const Communicator& world, const InferOptions& options);  // evaluate and predict

// ---- data

struct Sets {
  data::SourcePtr training, validation;       // each with one class, or a row of standardised targets, for each sample
  std::string train_group, validation_group;  // of the data, or none
  std::int64_t all = 0;                       // samples that were divided into both; 0: they are what the data say
};
// Fills in the recipe's classes or targets, channels, label and names. Errors: of opening; UsageErrors: options that exclude each
// other.
data::SourcePtr open_training(const TrainOptions& options);
Sets open_sets(const TrainOptions& options, Recipe& recipe);
// Samples with classes or targets of weights. Errors: channels of another number, pictures for volumes; labels, folders or
// targets that they do not know.
data::SourcePtr open_scored(const InferOptions& options, const Recipe& recipe);
// Samples alone.
data::SourcePtr open_unknown(const InferOptions& options, const Recipe& recipe);
inline constexpr trainer::SplitNotes split_notes{
    .samples = "all samples", .fraction = "validation fraction", .seed = "split seed", .kept = "validation"};

// ---- results

// On the validation set.
struct Score {
  double loss = 0, accuracy = 0;
  double auc = 0;  // two classes: of the second; more: the mean over classes of one against the rest
  // Of a regression `loss` is the mean squared error in units of the targets' deviations, and r2 the mean over targets of
  // 1 - MSE / variance; NaN where a target does not vary.
  double r2 = 0;
};

struct Epoch {
  std::int64_t epoch = 0;
  double train_loss = 0;
  Score validation;
};

struct Results {
  std::int64_t classes = 2;
  std::vector<std::string> names{};  // of the classes, or none
  Predictions predictions;           // logits; of a regression in the targets' own units
  std::vector<std::int64_t> labels;  // none: unknown, or a regression
  std::vector<Epoch> epochs;
  Score score;
  double majority = 0;                        // accuracy of always saying the most frequent class
  std::vector<RegressionScore> regression{};  // of each target; none: classes, or the targets are unknown

  bool scored() const { return !labels.empty() || !regression.empty(); }
  std::string name_of(std::int64_t label) const;
};

inline constexpr const char *predictions_file = "predictions.csv", *picture_file = "classify.png";
using trainer::summary_file;
// How often each class occurs.
std::vector<std::int64_t> count_classes(const data::Source& source);
double majority_of(const std::vector<std::int64_t>& counts);
// Takes predictions of samples with classes or targets; fills in what they score.
void score(Results& results, const Recipe& recipe, Predictions predictions);
// Of each sample a row: exp(logit) over their sum.
std::vector<double> probabilities(const Results& results);
// Writes predictions, picture and summary, and prints the summary, the score or a table. `run` is what the summary begins with,
// the last lines are `text` and which of `files` there are. Of one rank.
void report(const trainer::Options& options, const trainer::Outputs& out, const Results& results, const Recipe& recipe,
            const data::Source& source, nlohmann::ordered_json run, const std::vector<std::string>& files,
            const std::string& text);

// Slices of samples of all kinds, the receiver operating characteristic, curves of loss and AUC; without labels slices of the
// first samples with what is predicted.
void draw(const std::filesystem::path& path, const Results& results, const Recipe& recipe, const data::Source& source);

// ---- regression (regression.cpp)

// Of the training samples' rows: names, means and deviations (1 for a target that does not vary) become the recipe's.
void describe_targets(Recipe& recipe, const trainer::TargetRows& rows);
// Rows in the order of the recipe's targets, which are found by their names (one target whatever its name; `label`: the one of
// this name), and standardised. Error: a target that the rows do not have.
trainer::TargetRows standardised(const trainer::TargetRows& rows, const Recipe& recipe, const std::string& label = "");
// From outputs of the network to the targets' own units.
void restore_units(const Recipe& recipe, std::vector<double>& values);
Score score_targets(Results& results, const Recipe& recipe);
// 1 - MSE / variance of the truth; NaN where that does not vary.
double r2_of(const RegressionScore& score);
void write_targets(const std::filesystem::path& path, const Results& results, const Recipe& recipe, const data::Source& source);
// A table of scores, or of the first predictions.
void print_targets(const Results& results, const Recipe& recipe, const data::Source& source);
nlohmann::ordered_json targets_json(const Results& results, const Recipe& recipe);
void draw_targets(const std::filesystem::path& path, const Results& results, const Recipe& recipe, const data::Source& source);

}  // namespace mpigrad::classify
