#pragma once
// A trainer for your own network. A program names its network, loss and metrics and calls run(); it then has the commands
//
//   PROGRAM train --data PATH --out run [--grid depth=2] [--resume] ...     weights, table, curves, checkpoints, picture, summary
//   PROGRAM train --describe --size 64                                      layers, and the cost of a step
//   PROGRAM evaluate --weights run/weights.h5 --data PATH --out scores      loss and metrics on other samples
//   PROGRAM predict --weights run/weights.h5 --data PATH --out predictions  samples without targets
//
// with the keys of the project's own trainers (recipe.toml, --set KEY=VALUE, flags), on any grid of ranks; `PROGRAM train --keys`
// lists them. The functions are in a library of their own: `pkg-config --cflags --libs mpigrad-trainer`, in CMake
// find_package(mpigrad COMPONENTS trainer). examples/first/own_trainer.cpp is a page long.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/data/source.h"
#include "models/nn/module.h"
#include "models/train/training.h"
#include "models/train/training_log.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/program/setting.h"
#include "models/trainer/segmentation/segmentation.h"

namespace mpigrad::trainer {

// A number computed from the predictions of all samples, the same on every rank.
struct Metric {
  std::string name;
  std::function<double(const Predictions& predictions)> value;
};

// Data for drawing at the end of a command.
struct Results {
  const Problem& problem;
  const Predictions& predictions;          // for the validation samples, or for those evaluated or predicted
  const data::Source& source;              // of these samples
  bool scored = false;                     // true if their targets are known
  std::vector<EpochRow> epochs{};          // for `train`: values are the validation loss and the metrics
  std::map<std::string, double> values{};  // validation_loss and the metrics, if scored
};

struct Program {
  std::string name;    // of the program: weights of another program are an Error
  std::string help{};  // one line for --help
  // Called once on each rank. The network maps [N, D, H, W, C] to [N, outputs] for layouts of any grid (models/nn/layers.h).
  std::function<std::unique_ptr<nn::Module>(const Problem& problem)> network;
  // The loss of batches in training, and of all validation samples in float64 on one rank: mse, cross_entropy, or your own.
  LossFunction loss;
  std::vector<Metric> metrics{};
  std::vector<Setting> settings{};
  // The samples of `part` ("train", "val", "" for all; --train-group, --validation-group, --group) at `path`, with targets that
  // are rows of numbers or one class per sample; `predict` needs no targets. Called on each rank. None: any format of
  // data::open_source, with its options.
  std::function<data::SourcePtr(const std::string& path, const std::string& part)> open{};
  // Adds rows to the picture NAME.png, which begins with training curves and a comparison of predictions with targets. Called on
  // rank 0.
  std::function<void(plot::Figure& figure, const Results& results)> draw{};
  // Defaults of options.
  std::int64_t epochs = 10, batch = 8;
  double learning_rate = 1e-3;
};

// Runs the command named by the arguments on every rank, like mpigrad::run(). Returns the exit code: 2 for invalid arguments or
// data, 75 for a training that a limit or a signal has ended and that --resume continues.
int run(int argc, char** argv, const Program& program);

}  // namespace mpigrad::trainer
