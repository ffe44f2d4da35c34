// 3D U-Net: a class for every cell of a volume, from files to files, on any grid of ranks.
//
//   mpiexec -n 2 build/examples/unet3d train --data hippocampus --window 40,56,40 --grid depth=2 --out run
//   build/examples/unet3d evaluate --weights run/weights.h5 --data hippocampus --out scores
//   build/examples/unet3d predict --weights run/weights.h5 --images scans --out segmentations
//
// `train` shows the loss and the Dice of whole validation volumes after each epoch, `evaluate` prints a table and draws outlines,
// `predict` writes files of its images' format (models/data/volumes/volume_formats.h) and geometry.

#include "comm/launch.h"

#include <CLI/CLI.hpp>
#include "examples/trainers/unet3d/unet3d.h"
#include "models/data/volumes/volume_formats.h"
#include "models/trainer/infer.h"

namespace mpigrad::unet {
namespace {

std::string labelled_volumes() {
  return fmt::format("a folder of images/ and labels/ ({}, same file names), of NAME_x.npy beside NAME_y.npy, or HDF5",
                     data::volume_format_names());
}

void add_source_options(CLI::App& app, DataOptions& o) {
  app.add_option("--group", o.group, "of HDF5: where the datasets are")->group("Data");
  app.add_option("--volume", o.volume, "of HDF5: dataset of volumes [n, D, H, W, C]")->capture_default_str()->group("Data");
  app.add_option("--label", o.label, "of HDF5: dataset of the cells' classes [n, D, H, W]")->capture_default_str()->group("Data");
}

void add_options(CLI::App& app, TrainOptions& o) {
  o.out = "unet3d-out", o.batch = 2, o.epochs = 50;
  app.add_option("--data", o.data, labelled_volumes())->group("Data");
  add_source_options(app, o.source);
  app.add_option("--validation-fraction", o.validation_fraction, "of the volumes, drawn at random, that are kept for validation")
      ->check(tool::number_between(0.001, 0.999))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--split-seed", o.split_seed, "that draws them")
      ->check(tool::whole_number(0))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--spacing", o.spacing,
                 "mm between cells, D,H,W or one number, to which volumes are resampled (default: as stored)")
      ->group("Data");
  app.add_option("--normalise", o.recipe.normalisation,
                 "each volume to mean 0 and deviation 1: whole, nonzero (of the cells that are not 0) or none")
      ->check(CLI::IsMember({"whole", "nonzero", "none"}))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--window", o.window,
                 "cells of a volume that are trained on at once, D,H,W or one number; smaller volumes are padded")
      ->capture_default_str()
      ->group("Data");
  app.add_option("--foreground", o.foreground, "part of the windows that are laid over a cell of a class other than 0")
      ->check(tool::number_between(0, 1))
      ->capture_default_str()
      ->group("Data");
  trainer::add_data_options(app, o);
  trainer::add_store_option(app, o);
  const auto augmentation = [&](const char* name, double& value, const char* text) {
    app.add_option(name, value, text)->check(tool::number_from(0))->capture_default_str()->group("Augmentation");
  };
  augmentation("--elastic", o.elastic, "cells by which a smooth random deformation moves a cell along an axis, at most; 0: none");
  app.add_option("--elastic-spacing", o.elastic_spacing, "cells between the deformation's control points")
      ->check(tool::number_above(0))
      ->capture_default_str()
      ->group("Augmentation");
  augmentation("--contrast", o.contrast, "values are multiplied by up to 1 -+ this");
  augmentation("--brightness", o.brightness, "then up to this is added to all, either way");
  augmentation("--noise", o.noise, "normal noise of a deviation up to this");
  trainer::add_grid_option(app, o);
  trainer::add_communication_option(app, o);
  trainer::add_layer_grid_option(app, o);
  trainer::add_sharded_weights_option(app, o);
  trainer::add_device_options(app, o);
  app.add_option("--variant", o.recipe.variant, "mlperf (strided convolutions) or lbann (max pooling)")
      ->check(CLI::IsMember({"mlperf", "lbann"}))
      ->capture_default_str()
      ->group("Network");
  app.add_option("--filters", o.recipe.filters,
                 "of the levels from the finest on, separated by commas (default: the variant's, 32,64,128,256,320,320 or "
                 "32,64,128,256,512); their number is the depth")
      ->delimiter(',')
      ->check(tool::whole_number(1, 1 << 16))
      ->group("Network");
  app.add_option("--norm", o.recipe.norm, "instance, batch, group, layer or none (default: instance for mlperf, batch for lbann)")
      ->check(CLI::IsMember({"instance", "batch", "group", "layer", "none"}))
      ->group("Network");
  app.add_option("--groups", o.recipe.norm_groups, "of channels, of --norm group")
      ->check(tool::whole_number(1, 1 << 16))
      ->capture_default_str()
      ->group("Network");
  app.add_option("--statistics", o.recipe.statistics,
                 "ranks that share statistics: all, spatial (those of the same samples), batch (the same part of all) or local "
                 "(default: all for batch norm, else spatial)")
      ->check(CLI::IsMember({"all", "spatial", "batch", "local"}))
      ->group("Network");
  app.add_option("--norm-momentum", o.norm_momentum, "of the running statistics of batch norm")
      ->check(tool::number_between(0, 0.99999))
      ->capture_default_str()
      ->group("Network");
  app.add_option("--classes", o.recipe.classes, "with class 0, the background (default: 1 + the largest label)")
      ->check(tool::whole_number(2, 10000))
      ->group("Network");
  app.add_option("--channels", o.recipe.channels, "of --describe")->check(tool::whole_number(1, 1 << 16))->group("Description");
  app.add_flag("--recompute", o.recompute,
               "keep the ends of each block of two convolutions only, to save memory (of MLPerf's variant)")
      ->group("Network");
  app.add_option("--loss", o.loss,
                 "dice-ce (the mean of both), dice, cross-entropy, focal or tversky (0.3 false positives, 0.7 false "
                 "negatives)")
      ->check(CLI::IsMember({"dice-ce", "dice", "cross-entropy", "focal", "tversky"}))
      ->capture_default_str()
      ->group("Training");
  trainer::add_training_options(app, o);
  trainer::add_stop_options(app, o);
  trainer::add_profile_option(app, o);
  trainer::add_mllog_option(app, o);
  trainer::add_average_option(app, o);
  trainer::add_noise_option(app, o);
  app.add_option("--overlap", o.overlap, "part of a window that the next one holds, too, where whole volumes are segmented")
      ->check(tool::number_between(0, 0.95))
      ->capture_default_str()
      ->group("Validation");
  trainer::add_file_options(app, o);
  app.add_flag("--half-weights", o.half_weights, "write weights.h5 in float16, for use and not for further training")
      ->group("Files");
  trainer::add_describe_flag(app, o);
}

void add_options(CLI::App& app, InferOptions& o, bool scored) {
  o.out = scored ? "unet3d-scores" : "unet3d-predictions";
  app.add_option("--weights", o.weights, "weights.h5 of a training, which knows its network")->required()->group("Data");
  trainer::add_last_weights_option(app, o);
  if (scored) {
    app.add_option("--data", o.data, labelled_volumes())->required()->group("Data");
    app.add_option(
           "--part", o.part,
           "all, validation (what the training kept for it), or auto: validation if these are the training's data, else all")
        ->check(CLI::IsMember({"auto", "all", "validation"}))
        ->capture_default_str()
        ->group("Data");
  } else {
    app.add_option("--images", o.images, fmt::format("a folder of volumes ({}), or HDF5", data::volume_format_names()))
        ->required()
        ->group("Data");
  }
  add_source_options(app, o.source);
  app.add_option("--precision", o.precision, "in which layers compute: float32, tf32 (on GPUs), bfloat16 or float16")
      ->check(CLI::IsMember({"float32", "tf32", "bfloat16", "float16"}))
      ->group("Data");
  trainer::add_grid_option(app, o);
  trainer::add_onnx_option(app, o);
  trainer::add_device_options(app, o);
  app.add_option("--overlap", o.overlap, "part of a window that the next one holds, too")
      ->check(tool::number_between(0, 0.95))
      ->capture_default_str()
      ->group("Segmentation");
  app.add_option("--windows", o.windows, "at once")
      ->check(tool::whole_number(1, 1 << 20))
      ->capture_default_str()
      ->group("Segmentation");
  app.add_flag("--largest-component", o.largest_component, "of each class only the largest connected part stays")
      ->group("Segmentation");
  app.add_option("--out", o.out, scored ? "folder for tables and picture" : "folder for the segmentations")
      ->capture_default_str()
      ->group("Files");
  if (scored)
    app.add_flag("--predictions", o.predictions, "write the segmentations, too, in the format of their images")->group("Files");
  app.add_flag("--overwrite", o.overwrite, "replace files of an earlier run there")->group("Files");
  app.add_flag("--json", o.json, "print one JSON document and nothing else")->group("Output");
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  CLI::App app(
      "3D U-Net: a class for every cell of a volume (MLPerf Training's variant, or LBANN's), on volumes split over ranks.",
      "unet3d");
  app.require_subcommand(1);
  TrainOptions train_options;
  auto* train_command = app.add_subcommand("train", "train on volumes with labels");
  add_options(*train_command, train_options);
  InferOptions evaluate_options;
  auto* evaluate_command = app.add_subcommand("evaluate", "segment volumes with labels: Dice, Hausdorff distance, a picture");
  add_options(*evaluate_command, evaluate_options, true);
  InferOptions predict_options;
  auto* predict_command = app.add_subcommand("predict", "segment volumes without labels");
  add_options(*predict_command, predict_options, false);
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  for (auto* options : std::initializer_list<trainer::Options*>{&train_options, &evaluate_options, &predict_options})
    options->given = tool::given_options(app);
  return tool::finish(app, *transport, [&] {
    if (*train_command) {
      auto& o = train_options;
      trainer::check(o);
      trainer::apply_precision(o);
      trainer::apply_device_options(o);
      if (o.recipe.norm.empty()) o.recipe.norm = o.recipe.variant == "lbann" ? "batch" : "instance";
      if (!o.recipe.filters.empty() && o.recipe.filters.size() < 3)
        throw trainer::UsageError("--filters are at least three numbers");
      trainer::warn(o,
                    {"--variant", "--norm", "--groups", "--filters", "--classes", "--channels", "--window", "--recompute",
                     "--statistics", "--norm-momentum"},
                    transport->rank());
      const Communicator world(transport);
      return o.describe ? describe(world, o) : train(world, o);
    }
    auto& o = *evaluate_command ? evaluate_options : predict_options;
    trainer::apply_precision(o);
    trainer::apply_device_options(o);
    const Communicator world(transport);
    return *evaluate_command ? evaluate(world, o) : predict(world, o);
  });
}

}  // namespace
}  // namespace mpigrad::unet

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::unet::run(transport, argc, argv);
  });
}
