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
// find_package(mpigrad COMPONENTS trainer). examples/first/own_trainer.cpp is a page long; examples/trainers/classify/ and
// examples/trainers/cosmoflow/ are programs with more members of Program.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/data/data.h"
#include "models/nn/module.h"
#include "models/train/training.h"
#include "models/train/training_log.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/program/hooks.h"
#include "models/trainer/program/setting.h"
#include "models/trainer/segmentation/segmentation.h"

namespace mpigrad::trainer {

// A number computed from the predictions of all samples, the same on every rank. Numbers are in the units of the data, outputs
// for classes as the network gives them.
struct Metric {
  std::string name;
  std::function<double(const Predictions& predictions)> value;
};

// Data for drawing at the end of a command.
struct Results {
  const Problem& problem;
  const Predictions& predictions;          // as in Metric, for the samples kept, or for those evaluated or predicted
  const data::Source& source;              // of these samples
  bool scored = false;                     // true if their targets are known
  std::vector<EpochRow> epochs{};          // for `train`
  std::map<std::string, double> values{};  // validation_loss and the other columns of metrics.csv, if scored
};

// The samples that a training does not learn from, to score the network on.
struct Kept {
  std::string name = "validation";  // part of keys (data.validation_fraction), columns (validation_loss) and summary keys
  double fraction = 0;              // default of data.NAME_fraction; 0: the group data.NAME_group
  bool by_seed = false;             // true: `seed` draws the samples; false: data.split_seed does
};

// A predictor of numbers that is not a network, for comparison: tables, summary and picture show its errors next to the
// network's.
struct Reference {
  struct Predicted {
    std::vector<double> values{};  // [samples, targets]
    std::string missing{};         // the reason if there are no values
  };
  std::string name{};   // keys of the summary: NAME_mse, NAME_ratio, NAME_missing
  std::string label{};  // column of the table
  std::string help{};   // a line below the table
  std::string note{};   // the name of its note in files of weights
  // Fits it to the training's samples and returns the note. Collective.
  std::function<std::string(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples)>
      fit{};
  // Predicts from the note that fit() returned, read from the file `weights`. Collective.
  std::function<Predicted(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                          const std::string& note, const std::string& weights)>
      predict{};
};

enum class TargetKind : std::uint8_t { any, numbers, classes };

struct Program {
  std::string name;    // name of the program: weights of another program are an Error
  std::string help{};  // one line for --help
  // Called once on each rank. The network maps [N, D, H, W, C] to [N, outputs] for layouts of any grid (models/nn/layers.h).
  std::function<std::unique_ptr<nn::Module>(const Problem& problem)> network;
  // The loss: mse, cross_entropy, or your own. Computed for each training batch, and in each evaluation once for all kept
  // samples together, in float64 on one rank.
  LossFunction loss;
  LossFunction class_loss{};  // the loss if targets are classes; none: `loss`
  // The loss for a problem, by its settings; none, or an empty function returned: `loss` or `class_loss`.
  std::function<LossFunction(const Problem& problem)> loss_of{};
  TargetKind targets = TargetKind::any;
  bool standardise = false;       // the network learns (number - mean) / deviation, by the training's samples
  std::vector<Metric> metrics{};  // in addition to accuracy and AUC of classes, and R2 of numbers
  bool r2 = true;                 // R2, the mean over the numbers, is a column of metrics.csv
  std::vector<Setting> settings{};
  // Fills in values whose defaults depend on other values, before the weights remember them.
  std::function<void(Values& values)> complete{};
  std::vector<std::string> without{};  // keys that have no effect on the network, such as "network.keep"
  Kept kept{};
  bool any_extents = false;  // evaluate and predict accept samples of other extents than the training's
  // Transform of the values for `evaluate`, `predict` and pictures; batches of a training always use the source's own.
  data::Transform transform = data::Transform::of_source;
  // Opens the samples of `part` ("train", "val", "" for all; data.train_group, data.validation_group, data.group) at `path`, with
  // targets that are rows of numbers or classes; if `targets` is false, targets may be missing. Called on each rank. None: any
  // format of data::open_source, with its keys.
  std::function<data::SourcePtr(const std::string& path, const std::string& part, bool targets)> open{};
  // Returns what is wrong with the combination of settings, "" if nothing. `set`: the keys whose values are not their defaults,
  // with these values (the first value of a list).
  std::function<std::string(const Problem& problem, const std::map<std::string, std::string>& set)> check{};
  // Called before the first step of a training that begins with new weights. `samples`: the training's, in order and without
  // augmentation. Collective.
  std::function<void(nn::Module& net, const data::Loader& samples, const Problem& problem)> prepare{};
  std::optional<Reference> reference{};
  Problem described{};  // channels, outputs and classes for --describe without --data
  Hooks hooks{};
  // Adds rows to the picture NAME.png, which has samples, curves, and predictions against targets. On rank 0.
  std::function<void(plot::Figure& figure, const Results& results)> draw{};
  // Reads settings and channels from the notes of weights of an earlier version of the program; none: other notes.
  std::function<std::optional<Problem>(const std::map<std::string, std::string>& notes)> earlier{};
  // Defaults of keys.
  std::int64_t epochs = 10, batch = 8;
  double learning_rate = 1e-3;
};

// Runs the command named by the arguments on every rank, like mpigrad::run(). Returns the exit code: 2 for invalid arguments or
// data, 75 for a training that a limit or a signal has ended and that --resume continues.
int run(int argc, char** argv, const Program& program);

}  // namespace mpigrad::trainer
