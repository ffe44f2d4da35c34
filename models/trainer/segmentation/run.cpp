// Keys and commands of trainer::run_segmentation().

#include <CLI/CLI.hpp>

#include <algorithm>

#include "comm/launch.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/data/augment/recipe.h"
#include "models/data/volumes/label_rules.h"
#include "models/data/volumes/orientation.h"
#include "models/data/volumes/volume_formats.h"
#include "models/trainer/program/setting_keys.h"
#include "models/trainer/recipe/commands.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer {

namespace segmenting {
namespace {

constexpr std::int64_t most_cells = 1 << 20;  // along an axis of a window

// D, H, W from one number for all axes, or from three. UsageError: anything else.
template <class T>
std::array<T, 3> three(const std::string& name, std::vector<T> values, T most) {
  const auto text = joined(values, ",");
  if (values.size() == 1) values.resize(3, values.front());
  if (values.size() != 3 || !std::all_of(values.begin(), values.end(), [&](T x) { return x > 0 && x <= most; }))
    throw UsageError(fmt::format("{} is one number or three, D,H,W, above 0; got '{}'", name, text));
  return {values[0], values[1], values[2]};
}

Rule memory_rule() {
  const std::string text = "bytes with a unit, such as 8GiB";
  return {.text = text, .choices = {}, .problem = [text](const std::string& value) {
            return bytes_of_text(value) > 0 ? std::string() : fmt::format("'{}' is not {}", printable(value), text);
          }};
}

Rule orientation_rule() {
  const std::string text = "stored, or one letter each of R or L, A or P, S or I";
  return {.text = text, .choices = {}, .problem = [text](const std::string& value) {
            if (value == "stored" || data::is_orientation(value)) return std::string();
            return fmt::format("'{}' is not {}", printable(value), text);
          }};
}

Rule recipe_rule() {
  return {.text = "steps of augmentation for volumes with labels", .choices = {}, .problem = [](const std::string& value) {
            try {
              if (!value.empty()) augment::parse_recipe(value, {}).require_windows();
            } catch (const Error& error) {
              return std::string(error.what());
            }
            return std::string();
          }};
}

std::string labelled_volumes() {
  return fmt::format("a folder of images/ and labels/ ({}, same file names), nnU-Net's, of NAME_x.npy with NAME_y.npy, or HDF5",
                     data::volume_format_names());
}

void add_source_keys(Keys& keys, DataOptions& o) {
  keys.add("data.group", o.group, "of HDF5: the group of the datasets").with_default("the file's root").instead_of("--group");
  keys.add("data.volume", o.volume, "of HDF5: dataset of volumes [n, D, H, W, C]").instead_of("--volume");
  keys.add("data.label", o.label, "of HDF5: dataset of the cells' classes [n, D, H, W]").instead_of("--label");
}

void add_overlap_key(Keys& keys, double& overlap) {
  keys.add("data.overlap", overlap, between(0, 0.95),
           "fraction of a window that overlaps with the next one when whole volumes are segmented")
      .instead_of("--overlap");
}

void add_data_keys_of(Keys& keys, TrainOptions& o) {
  keys.add("data.path", o.data, labelled_volumes()).with_flag("--data");
  add_source_keys(keys, o.source);
  auto& division = o.division;
  keys.add("data.validation_fraction", division.fraction, between(0.001, 0.999),
           "part of the volumes, drawn at random, that is kept for validation")
      .instead_of("--validation-fraction");
  keys.add("data.split_seed", division.seed, whole(0), "seed of that random choice, and of folds").instead_of("--split-seed");
  keys.add("data.folds", division.folds, whole(0, 1000),
           "divides the volumes at random into so many equal parts, one of which is kept for validation in place of "
           "data.validation_fraction; 0: no folds");
  keys.add("data.fold", division.fold, whole(1, 1000), "the part that is kept, from 1 to data.folds");
  keys.add("data.spacing", o.spacing, above(0), "distance of cells to which volumes are resampled: D, H, W, or one number")
      .with_unit("mm")
      .with_default("as stored")
      .instead_of("--spacing");
  keys.add(
      "data.interpolation", o.trained.interpolation, one_of({"linear", "cubic"}),
      "values of volumes that are resampled: linear, or by cubic B-splines as nnU-Net does; the mean along axes that lose cells");
  keys.add("data.orientation", o.orientation, orientation_rule(),
           "orientation to which volumes are turned by their files' affine maps, three letters such as RAS or LPS; stored: none");
  keys.add("data.normalise", o.trained.normalisation, one_of({"whole", "nonzero", "none", "ct"}),
           "each volume to mean 0 and deviation 1: whole, or nonzero, of the cells that are not 0; ct: by the numbers of "
           "data.intensities")
      .instead_of("--normalise");
  keys.add("data.intensities", o.trained.intensities, any_number(),
           "for ct, of each channel: lowest and highest value, to which values are clipped, then mean and deviation, by which "
           "they "
           "are normalised; a channel with deviation 0 is normalised in each volume, as `whole`")
      .with_default("none; the command plan measures them");
  keys.add("data.window", o.window, Rule{.text = "one number or three, D,H,W, above 0"},
           "cells of a volume in a training sample; smaller volumes are padded")
      .with_unit("cells")
      .with_flag("--window");
  keys.add("data.windows_per_volume", o.windows, whole(1, 1000000),
           "windows of each volume in an epoch, which ends with the validation of whole volumes");
  keys.add("data.foreground", o.foreground, between(0, 1),
           "fraction of the windows that are placed over a cell of a class other than 0")
      .instead_of("--foreground");
  keys.add("data.augment", o.augment, recipe_rule(),
           "random changes of windows and their labels, in this order: nnunet (nnU-Net's steps), or steps with numbers, such as "
           "\"rotate:degrees=15,scale,elastic,gamma:p=0.3\"; steps: rotate, scale, elastic, flip, cubic, scores, noise, blur, "
           "brightness, contrast, resolution, gamma")
      .with_default("none");
  add_overlap_key(keys, o.overlap);
  add_data_keys(keys, o);
  keys.remove("data.shifts");  // windows are not periodic boxes
  add_reading_keys(keys, o);
  keys.add("data.cache", o.source.cache,
           "a folder, best on a disk of the node, for volumes that are unpacked, turned and resampled. Windows are read from "
           "there, also by later trainings")
      .with_default("none: where volumes do not stay in memory, each window reads a whole one");
}

void add_label_keys(Keys& keys, Trained& trained) {
  const auto problem = [](const std::string& value) {
    try {
      (void)data::label_rules({value}, {});
    } catch (const Error&) {
      return fmt::format("'{}' is not STORED=CLASS, such as 255=1", printable(value));
    }
    return std::string();
  };
  keys.add("labels.map", trained.label_map, Rule{.text = "STORED=CLASS", .choices = {}, .problem = problem},
           "classes of stored labels, { 255 = 1 } in a recipe; other labels are their own classes");
  keys.add("labels.ignore", trained.ignored, whole(-2147483647, 2147483647),
           "stored labels of cells that count in no loss, no score and no choice of windows");
}

void add_keys(Keys& keys, const SegmentationProgram& program, TrainOptions& o) {
  add_data_keys_of(keys, o);
  add_label_keys(keys, o.trained);
  auto& problem = o.trained.problem;
  add_setting_keys(keys, program.settings, problem.values);
  keys.add("network.classes", problem.outputs, whole(2, 10000), "number of classes, including class 0, the background")
      .with_default("1 + the largest label")
      .instead_of("--classes");
  keys.add("network.channels", problem.channels, whole(1, 1 << 16), "channels of the volumes for --describe")
      .instead_of("--channels");
  keys.add("labels.regions", o.regions, Rule{.text = "NAME=CLASS+CLASS"},
           "unions of classes as targets, each with an output of its own, as nnU-Net's regions: a list of \"whole=1+2+3\", "
           "\"core=2+3\", \"enhancing=3\"");
  keys.add(
          "labels.region_order", o.region_order, whole(1, 9999),
          "the class that each region writes into predictions; where regions overlap, the later in the list replaces the earlier")
      .with_default("the one class that no smaller region inside has");
  std::vector<std::string> losses;
  for (const auto& each : program.losses) losses.push_back(each.name);
  keys.add("loss.name", o.loss, one_of(losses), "loss of the scores of a window and its labels").with_flag("--loss");
  keys.add("loss.batch_dice", o.batch_dice, "one overlap of each class over all windows of a batch, not one for each window");
  keys.add("loss.background", o.background, "class 0 counts in the overlap, too");
  add_training_keys(keys, o);
  add_precision_keys(keys, o);
  add_grid_keys(keys, o);
  add_checkpoint_keys(keys, o);
  keys.add("checkpoint.half_weights", o.half_weights, "writes weights.h5 in float16, for use and not for further training")
      .instead_of("--half-weights");
  add_report_keys(keys, o);
}

void add_keys(Keys& keys, InferOptions& o, bool scored) {
  if (scored) keys.add("data.path", o.data, labelled_volumes()).with_flag("--data");
  else
    keys.add("data.images", o.data, fmt::format("a folder of volumes ({}), or HDF5", data::volume_format_names()))
        .with_flag("--images");
  add_source_keys(keys, o.source);
  add_infer_keys(keys, o, scored, "validation");
  keys.remove("data.batch");
  if (scored) {
    auto& part = keys["data.part"];
    part.rule = one_of({"auto", "all", "validation", "folds"});
    part.help += "; folds: all, each by the weights whose training kept it";
  }
  keys.add("network.ensemble", o.ensemble, "further files of weights; the probabilities of all networks are averaged")
      .with_flag("--ensemble");
  add_overlap_key(keys, o.overlap);
  keys.add("data.windows", o.windows, whole(1, 1 << 20), "windows that are computed at once").instead_of("--windows");
  keys.add("data.largest_component", o.largest_component, "keeps only the largest connected part of each class or region")
      .instead_of("--largest-component");
  keys.add("predict.mirror", o.mirror, one_of({"depth", "height", "width"}),
           "axes along which windows are mirrored, all combinations of them: the probabilities are averaged");
  keys.add("predict.scores", o.scores, one_of({"float32", "16-bit"}),
           "the numbers in which probabilities are summed over windows; 16-bit: multiples of 1/65535, in half the memory");
  keys.add("predict.memory", o.memory, from(0), "the most that a rank may take; volumes that need more are refused")
      .with_unit("GiB")
      .with_default("the machine's free memory, divided by its ranks");
  keys.add("predict.postprocessing", o.postprocessing,
           fmt::format("{} of a training or an evaluation: keeps only the largest component of the classes that it names",
                       postprocessing_file))
      .with_flag("--postprocessing");
  if (scored)
    keys.add("report.regions", o.regions, Rule{.text = "NAME=CLASS+CLASS"},
             "unions of classes that are scored, too, such as whole=1+2");
  if (scored)
    keys.add("report.tolerance", o.tolerance, from(0), "distance between surfaces that counts as agreement").with_unit("mm");
  if (scored)
    keys.add("report.predictions", o.predictions, "writes the segmentations, too, in the format of their images")
        .instead_of("--predictions");
}

void add_keys(Keys& keys, CheckOptions& o) {
  keys.add("data.path", o.data, labelled_volumes());
  add_source_keys(keys, o.source);
  keys.add("data.workers", o.workers, whole(1, 1024), "threads of each rank that read files")
      .with_default("the machine's processors, divided by the ranks");
  add_label_keys(keys, o.trained);
}

void add_keys(Keys& keys, const SegmentationProgram& program, PlanOptions& o) {
  keys.add("plan.memory", o.memory, memory_rule(),
           "memory of a rank that a training step may need, with the volumes that the rank keeps")
      .with_flag("--memory");
  keys.add("plan.filters", o.filters, whole(1, 1 << 16), "filters of the finest level, doubled from level to level up to 320");
  keys.add("plan.modalities", o.modalities,
           "of each channel: CT is normalised by the intensities of all volumes, other names volume "
           "by volume")
      .with_default("channel_names of dataset.json")
      .with_flag("--modality");
  keys.add("plan.workers", o.workers, whole(0, 1024),
           "threads of each rank that read files; 0: as many as there are processors for it");
  add_keys(keys, program, static_cast<TrainOptions&>(o));
  keys["data.path"].with_flag("");
}

void add_plan_flags(CLI::App& app, PlanOptions& o) {
  app.add_option("--out", o.file, "the recipe to write")->capture_default_str();
  app.add_flag("--overwrite", o.overwrite, "replace an existing recipe");
  app.add_flag("--json", o.json, "print one JSON document and nothing else");
}

int run_train(const Communicator& world, const SegmentationProgram& program, TrainOptions& o) {
  check(o);
  if (o.division.folds == 1 || (o.division.folds > 1 && o.division.fold > o.division.folds))
    throw UsageError(
        fmt::format("data.folds is 0 or at least 2, and data.fold is one of them: {} of {}", o.division.fold, o.division.folds));
  if (o.division.folds == 0 && o.given.contains("data.fold"))
    throw UsageError("data.fold is one of data.folds, which is not given");
  auto& trained = o.trained;
  trained.problem.extents = window_of(o.window);
  if (o.given.contains("data.intensities") && trained.normalisation != "ct")
    throw UsageError(fmt::format("data.intensities is of data.normalise ct, not of {}", trained.normalisation));
  if (!o.spacing.empty()) trained.spacing = three("data.spacing", o.spacing, std::numeric_limits<double>::max());
  if (o.orientation != "stored") trained.orientation = o.orientation;
  try {
    if (program.complete) program.complete(trained.problem.values);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  // The norm's momentum is in Options, from which notes take it.
  const auto momentum = trained.problem.values.find("norm_momentum");
  if (momentum != trained.problem.values.end() && std::holds_alternative<double>(momentum->second))
    o.norm_momentum = std::get<double>(momentum->second);
  std::set<std::string> own{"data.window", "network.classes", "network.channels",
                            "loss.name",   "loss.batch_dice", "loss.background"};
  for (const auto& setting : program.settings) own.insert(key_of(setting));
  o.training.fit.whole_step = true;
  take_regions(o);
  warn(o, own, world.rank());
  return o.describe ? describe(world, program, o) : train(world, program, o);
}

int run_infer(const Communicator& world, const SegmentationProgram& program, const InferOptions& o) {
  if (o.data.empty() && !o.scored) throw UsageError("--images is needed");
  check(o);
  if (o.largest_component && !o.postprocessing.empty())
    throw UsageError("data.largest_component is of all classes; predict.postprocessing names classes: give one of them");
  return infer(world, program, o);
}

int run_on(const std::shared_ptr<Transport>& transport, int argc, char** argv, const SegmentationProgram& program) {
  require(!program.name.empty() && program.network && !program.losses.empty(),
          "[trainer] a program of segmentation has a name, a network and a loss");
  TrainOptions learning;
  learning.out = program.name + "-out", learning.loss = program.losses.front().name, learning.window = program.window;
  learning.training.fit.epochs = program.epochs, learning.batch = program.batch,
  learning.optimizer_options.learning_rate = program.learning_rate;
  learning.trained.problem.outputs = 0, learning.trained.problem.classes = true;
  InferOptions scoring, predicting;
  CheckOptions checking;
  scoring.out = program.name + "-scores", predicting.out = program.name + "-predictions";
  PlanOptions planning;
  static_cast<TrainOptions&>(planning) = learning;
  return run_commands(
      transport, argc, argv, program.name,
      program.help.empty() ? "Trains a segmentation network, scores it and segments volumes with it." : program.help,
      {{.name = "train",
        .help = "train on volumes with labels",
        .options = learning,
        .keys = [&](Keys& keys) { add_keys(keys, program, learning); },
        .flags = [&](CLI::App& app) { add_training_flags(app, learning); },
        .run = [&](const Communicator& world) { return run_train(world, program, learning); }},
       {.name = "evaluate",
        .help = "segment volumes with labels: Dice, Hausdorff distance, a picture",
        .options = scoring,
        .keys = [&](Keys& keys) { add_keys(keys, scoring, true); },
        .flags = [&](CLI::App& app) { add_run_flags(app, scoring); },
        .run = [&](const Communicator& world) { return run_infer(world, program, scoring); },
        .all_flags = true},
       {.name = "predict",
        .help = "segment volumes without labels",
        .options = predicting,
        .keys = [&](Keys& keys) { add_keys(keys, predicting, false); },
        .flags = [&](CLI::App& app) { add_run_flags(app, predicting); },
        .run = [&](const Communicator& world) { return run_infer(world, program, predicting); },
        .all_flags = true},
       {.name = "check",
        .help = "read volumes and labels once and say what is wrong with them, a line each; exit code 2 if something is",
        .options = checking,
        .keys = [&](Keys& keys) { add_keys(keys, checking); },
        .flags = [&](CLI::App& app) { app.add_flag("--json", checking.json, "print one JSON document and nothing else"); },
        .run = [&](const Communicator& world) { return check(world, checking); },
        .argument = "data.path"},
       {.name = "plan",
        .help = "read volumes and labels once and write a recipe for a training on them that fits into memory",
        .options = planning,
        .keys = [&](Keys& keys) { add_keys(keys, program, planning); },
        .flags = [&](CLI::App& app) { add_plan_flags(app, planning); },
        .run = [&](const Communicator& world) { return plan(world, program, planning); },
        .argument = "data.path"}});
}

}  // namespace

void add_train_keys(Keys& keys, const SegmentationProgram& program, TrainOptions& options) { add_keys(keys, program, options); }

void take_regions(TrainOptions& o) {
  try {
    if (!o.regions.empty()) o.trained.regions = regions_of(o.regions, o.region_order);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  if (o.regions.empty() && !o.region_order.empty()) throw UsageError("labels.region_order is of labels.regions");
}

Shape window_of(const std::vector<std::int64_t>& window) {
  const auto w = three("--window", window, most_cells);
  return {w[0], w[1], w[2]};
}

}  // namespace segmenting

int run_segmentation(int argc, char** argv, const SegmentationProgram& program) {
  return launch(argc, argv,
                [&](const std::shared_ptr<Transport>& transport) { return segmenting::run_on(transport, argc, argv, program); });
}

}  // namespace mpigrad::trainer
