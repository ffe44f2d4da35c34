#pragma once
// The parts of the program `classify`.

#include "comm/communicator.h"
#include "examples/classify/network.h"
#include "examples/trainer/supervised.h"
#include "models/data/sources/hdf5.h"
#include "models/train/metrics.h"

namespace mpigrad::classify {

struct Options : trainer::Options {
  std::string train_group = "train", validation_group = "val", volume = "volume", label = "label";
  std::int64_t filters = 16;
  bool full_resolution = false;
};

NetworkOptions network_options(const Options& options, std::int64_t classes);

// Each returns the exit code. `evaluate` is --epochs 0.
int describe(const Communicator& world, const Options& options);
int train(const Communicator& world, const Options& options);
int evaluate(const Communicator& world, const Options& options);

// On the validation set.
struct Score {
  double loss = 0, accuracy = 0;
  double auc = 0;  // two classes: of the second; more: the mean over classes of one against the rest
};

struct Epoch {
  std::int64_t epoch = 0;
  double train_loss = 0;
  Score validation;
};

struct Results {
  std::int64_t classes = 2;
  Predictions predictions;  // logits
  std::vector<std::int64_t> labels;
  std::vector<Epoch> epochs;
  Score score;
  double majority = 0;  // accuracy of always saying the most frequent class
};

inline constexpr const char *predictions_file = "predictions.csv", *picture_file = "classify.png";
using trainer::summary_file;
// A group of the data. Error: its labels are no classes.
data::SourcePtr open(const Options& options, const std::string& group);
// How often each class occurs.
std::vector<std::int64_t> count_classes(const data::Source& source);
double majority_of(const std::vector<std::int64_t>& counts);
// Predicts every sample once; fills in predictions, labels and score. Collective.
void evaluate(nn::Module& net, const data::Loader& validation, Results& results);
// Writes predictions, picture and summary, and prints the summary or the score. `run` is what the summary begins with, the last
// lines are `text` and which of `files` there are. Of one rank.
void report(const Options& options, const trainer::Outputs& out, const Results& results, const data::Source& validation,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text);

// Slices of samples of both kinds, the receiver operating characteristic, curves of loss and AUC.
void draw(const std::filesystem::path& path, const Results& results, const data::Source& validation);

}  // namespace mpigrad::classify
