#pragma once
// A trainer for your own segmentation network: a class for every cell of a volume. A program names its network and calls
// run_segmentation(); it then has the commands
//
//   PROGRAM train --data PATH --window 40,56,40 --out run [--grid depth=2] ...   trains on windows, scores whole volumes
//   PROGRAM train --describe --window 128                                        layers, and what a step costs
//   PROGRAM evaluate --weights run/weights.h5 --data PATH --out scores           Dice, Hausdorff distance, a picture
//   PROGRAM predict --weights run/weights.h5 --images PATH --out segmentations   files of the images' format and geometry
//   PROGRAM check PATH                                                           what is wrong with data, before a training
//   PROGRAM plan PATH --memory 8GiB --out plan.toml [--grid depth=2]             a recipe for `train`, made from the data
//
// examples/trainers/unet3d/ is such a program; its README.md says which data it takes and what it writes.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/losses/segmentation.h"
#include "models/nn/module.h"
#include "models/train/training.h"
#include "models/trainer/program/setting.h"

namespace mpigrad::trainer {

// A loss of scores [N, D, H, W, classes] and labels [N, D, H, W].
struct SegmentationLoss {
  std::string name;
  LossFunction loss;
  // The same loss, in which cells with the label -1 do not count, for labels.ignore. None: this key is refused with this loss.
  LossFunction ignoring{};
  // The same loss with these options of its overlap, for loss.batch_dice and loss.background. None: these keys are refused with
  // this loss.
  std::function<LossFunction(const segmentation::OverlapOptions&)> of_overlap{};
};
// dice-ce, dice, cross-entropy, focal, and tversky with weights of 0.3 for false positives and 0.7 for false negatives
// (models/losses/segmentation.h).
std::vector<SegmentationLoss> segmentation_losses();

// Levels of a network that the command `plan` has chosen for the data, from the finest on.
struct NetworkPlan {
  std::vector<std::int64_t> filters{};
  std::vector<Triple> strides{}, kernels{};  // strides: with which each level begins; 1 for the finest
};

struct SegmentationProgram {
  std::string name;    // name of the program and of the note in weights; weights of another program are an Error
  std::string help{};  // one line for --help
  // Called on each rank. The network maps [N, D, H, W, channels] to scores [N, D, H, W, outputs] for layouts of any grid:
  // `outputs` of the problem is the number of classes, `extents` are those of a window. With scores of coarse levels
  // (DeeplySupervised, models/losses/deep_supervision.h) the loss is deep_supervision_loss().
  std::function<std::unique_ptr<nn::Module>(const Problem& problem)> network;
  std::vector<SegmentationLoss> losses = segmentation_losses();  // loss.name is one of them; the first is the default
  std::vector<Setting> settings{};
  // Fills in values whose defaults depend on other values, before the weights remember them. An Error thrown by it means invalid
  // values, exit code 2.
  std::function<void(Values& values)> complete{};
  // Sets the settings to a plan. None: the program has no command `plan`.
  std::function<void(Values& values, const NetworkPlan& plan)> planned{};
  // Names of settings in the weights' note, if they differ. "": the note does not have the setting, and the network of `evaluate`
  // and `predict` gets its default.
  std::map<std::string, std::string> note_names{};
  // The settings that summary.json and --json contain, by command: train, describe, evaluate, predict. For a command that is
  // missing here, all settings.
  std::map<std::string, std::vector<std::string>> summaries{};
  // Defaults of keys.
  std::int64_t epochs = 50, batch = 2;
  double learning_rate = 1e-3;
  std::vector<std::int64_t> window{64};  // one number, or D, H, W
};

// Runs the command that the arguments name on every rank, like mpigrad::run(). Returns the exit code: 2 for invalid arguments or
// data, 75 for a training that a limit or a signal has ended and that --resume continues.
int run_segmentation(int argc, char** argv, const SegmentationProgram& program);

}  // namespace mpigrad::trainer
