#pragma once
// A trainer for your own network. A program names its network, loss and metrics and calls run(); it then has the commands
//
//   PROGRAM train --data PATH --out run [--grid depth=2] [--resume] ...     weights, table, curves, checkpoints, picture, summary
//   PROGRAM train --describe --size 64                                      layers, and what a step costs
//   PROGRAM evaluate --weights run/weights.h5 --data PATH --out scores      loss and metrics of other samples
//   PROGRAM predict --weights run/weights.h5 --data PATH --out predictions  samples without targets
//
// with the options of the project's own trainers, on any grid of ranks; `PROGRAM train --help` lists them. The functions are in a
// library of their own: `pkg-config --cflags --libs mpigrad-trainer`, in CMake find_package(mpigrad COMPONENTS trainer).
// examples/first/own_trainer.cpp is a page long.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "models/data/source.h"
#include "models/nn/module.h"
#include "models/train/training.h"
#include "models/train/training_log.h"
#include "models/trainer/plot/figure.h"

namespace mpigrad::trainer {

using Value = std::variant<bool, std::int64_t, double, std::string>;

// An option of the program's own, --NAME, which `train` takes; weights remember its value.
struct Setting {
  std::string name;
  Value value;  // the default; its type is the option's
  std::string help{};
};

// What a network is made for. Weights remember it, so that `evaluate` and `predict` make the same network.
struct Problem {
  Shape extents{1, 1, 1};  // [D, H, W] of the samples of the training
  std::int64_t channels = 1;
  std::int64_t outputs = 1;             // numbers in a target, or classes
  bool classes = false;                 // targets are integers: labels [N] from 0 on
  std::vector<std::string> targets{};   // names
  std::map<std::string, Value> values;  // of the settings

  // Errors: no setting of this name, another type.
  template <class T>
  const T& get(const std::string& name) const {
    const auto* found = std::get_if<T>(&value_of(name));
    if (found == nullptr) fail("[trainer] the setting '{}' has another type", name);
    return *found;
  }

 private:
  const Value& value_of(const std::string& name) const;
};

// A number computed from the predictions of all samples, the same on every rank.
struct Metric {
  std::string name;
  std::function<double(const Predictions& predictions)> value;
};

// What there is to draw at the end of a command.
struct Results {
  const Problem& problem;
  const Predictions& predictions;          // of the samples for validation, or of those evaluated or predicted
  const data::Source& source;              // of these samples
  bool scored = false;                     // their targets are known
  std::vector<EpochRow> epochs{};          // of `train`: values are the validation loss and the metrics
  std::map<std::string, double> values{};  // validation_loss and the metrics, where scored
};

struct Program {
  std::string name;    // of the program: weights of another program are refused
  std::string help{};  // one line for --help
  // Called once on each rank. The network maps [N, D, H, W, C] to [N, outputs] for layouts of any grid (models/nn/layers.h).
  std::function<std::unique_ptr<nn::Module>(const Problem& problem)> network;
  // Of batches in training, and of all samples kept for validation in float64 on one rank: mse, cross_entropy, or your own.
  LossFunction loss;
  std::vector<Metric> metrics{};
  std::vector<Setting> settings{};
  // The samples of `part` ("train", "val", "" for all; --train-group, --validation-group, --group) at `path`, with targets that
  // are rows of numbers or one class a sample; `predict` needs no targets. Each rank calls it. None: any format of
  // data::open_source, with the options for it.
  std::function<data::SourcePtr(const std::string& path, const std::string& part)> open{};
  // Adds rows to the picture NAME.png, which begins with curves of the training and predictions beside targets. On rank 0.
  std::function<void(plot::Figure& figure, const Results& results)> draw{};
  // Defaults of options.
  std::int64_t epochs = 10, batch = 8;
  double learning_rate = 1e-3;
};

// Runs the command that the arguments name on every rank, as mpigrad::run() does. Returns the exit code: 2 for arguments or data
// that make no sense, 75 for a training that a limit or a signal has ended and --resume continues.
int run(int argc, char** argv, const Program& program);

}  // namespace mpigrad::trainer
