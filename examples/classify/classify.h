#pragma once
// The parts of the program `classify`.

#include "comm/communicator.h"
#include "examples/classify/network.h"
#include "examples/trainer/run.h"
#include "models/metrics.h"

namespace mpigrad::classify {

struct Options : trainer::Options {
  std::string train_group = "train", validation_group = "val", volume = "volume", label = "label";
  std::int64_t filters = 16;
  bool full_resolution = false;
};

NetworkOptions network_options(const Options& options, std::int64_t classes);

// Each returns the exit code.
int describe(const Communicator& world, const Options& options);
int train(const Communicator& world, const Options& options);

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
};

// Slices of samples of both kinds, the receiver operating characteristic, curves of loss and AUC.
void draw(const std::filesystem::path& path, const Results& results, const data::Source& validation);

}  // namespace mpigrad::classify
