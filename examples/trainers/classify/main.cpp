// Classes or numbers of volumes and pictures, on any grid of ranks.
//
//   mpiexec -n 2 build/examples/classify train --data adrenal64.h5 --grid depth=2 --flips --out run
//   build/examples/classify train --data scans --validation-fraction 0.2 --out run
//   build/examples/classify train --data scans --targets ages.csv --validation-fraction 0.2 --out run
//   build/examples/classify evaluate --weights run/weights.h5 --data others --out scores
//   build/examples/classify predict --weights run/weights.h5 --data unknown --out predictions
//
// Data are what `contrastive` takes, with a class for each sample: the folders of a folder, labels beside MNIST's files, ... HDF5
// has groups `train` and `val`, each with `volume` [n, D, H, W, C] and integers `label` [n]; `pack` writes such a file. After
// every epoch `train` shows loss, accuracy and area under the ROC curve of the validation samples.
//
// Where `label` [n] or [n, T] holds floating-point numbers, or --targets names a table (CSV), it is a regression: the loss is
// the mean squared error of targets with mean 0 and deviation 1, and `train` and `evaluate` print MSE, RMSE, MAE and R2 of each
// target.

#include "comm/launch.h"

#include <CLI/CLI.hpp>
#include "examples/trainers/classify/classify.h"

namespace mpigrad::classify {
namespace {

void add_options(CLI::App& app, TrainOptions& o) {
  o.out = "classify-out";
  o.batch = 16;
  o.learning_rate = 2e-3;
  trainer::add_sample_options(app, o.source, "");
  trainer::add_label_option(app, o.source);
  trainer::add_target_option(app, o.source);
  trainer::add_worker_option(app, o.source);
  const auto name = [&](const char* option, std::string& value, const char* text) {
    return app.add_option(option, value, text)->group("Data");
  };
  name("--train-group", o.train_group, "group (of HDF5, .npz, CIFAR) to train on")->capture_default_str();
  name("--validation-group", o.validation_group, "group to score on")->capture_default_str();
  name("--validation-data", o.validation_data, "data to score on, instead of a group");
  name("--validation-targets", o.validation_targets, "table of the numbers of --validation-data (default: that of --targets)");
  app.add_option("--validation-fraction", o.validation_fraction,
                 "of the samples, drawn at random, that are kept to score on, instead of a group")
      ->check(tool::number_between(0.001, 0.999))
      ->group("Data");
  app.add_option("--split-seed", o.split_seed, "of the draw of --validation-fraction")
      ->check(tool::whole_number(0))
      ->capture_default_str()
      ->group("Data");
  trainer::add_data_options(app, o);
  trainer::add_store_option(app, o);
  trainer::add_grid_option(app, o);
  trainer::add_communication_option(app, o);
  trainer::add_layer_grid_option(app, o);
  trainer::add_sharded_weights_option(app, o);
  trainer::add_device_options(app, o);
  app.add_option("--filters", o.recipe.filters, "of the first convolution; each further one has twice as many")
      ->check(tool::whole_number(1, 4096))
      ->capture_default_str()
      ->group("Network");
  app.add_flag("--full-resolution", o.recipe.full_resolution, "do not average 2^3 voxels (of pictures 2^2 pixels) first")
      ->group("Network");
  trainer::add_norm_options(app, o);
  trainer::add_training_options(app, o);
  trainer::add_stop_options(app, o);
  trainer::add_profile_option(app, o);
  trainer::add_mllog_option(app, o);
  trainer::add_average_option(app, o);
  trainer::add_noise_option(app, o);
  trainer::add_file_options(app, o);
  trainer::add_describe_options(app, o);
}

void add_options(CLI::App& app, InferOptions& o, bool scored) {
  o.out = scored ? "classify-scores" : "classify-predictions";
  o.batch = 16;
  trainer::add_sample_options(app, o.source, "--group");
  trainer::add_worker_option(app, o.source);
  if (scored) {
    trainer::add_target_option(app, o.source);
    app.add_option("--label", o.source.label, "name of the labels that count (default: that of the training)")->group("Data");
  } else {
    for (const auto* name : {"--labels", "--label-dataset"}) app.remove_option(app.get_option(name));
  }
  trainer::add_infer_options(app, o, scored, "validation");
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  CLI::App app("Predicts classes or numbers of volumes and pictures that are split over ranks.", "classify");
  app.require_subcommand(1);
  TrainOptions train_options;
  auto* train_command = app.add_subcommand("train", "train on samples with classes, or with numbers to predict");
  add_options(*train_command, train_options);
  InferOptions evaluate_options;
  auto* evaluate_command = app.add_subcommand("evaluate", "score on samples with known classes or numbers: scores, a picture");
  add_options(*evaluate_command, evaluate_options, true);
  InferOptions predict_options;
  add_options(*app.add_subcommand("predict", "predict classes or numbers of samples without them"), predict_options, false);
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  for (auto* options : std::initializer_list<trainer::Options*>{&train_options, &evaluate_options, &predict_options})
    options->given = tool::given_options(app);
  train_options.data = train_options.source.data;
  for (auto* options : {&evaluate_options, &predict_options}) options->data = options->source.data;
  return tool::finish(app, *transport, [&] {
    if (*train_command) {
      const auto& o = train_options;
      trainer::check(o);
      trainer::apply_precision(o);
      trainer::apply_device_options(o);
      if (o.given.contains("--split-seed") && o.validation_fraction == 0)
        throw trainer::UsageError("--split-seed is of --validation-fraction");
      trainer::warn(o,
                    {"--train-group", "--validation-data", "--validation-fraction", "--volume", "--stored", "--channels",
                     "--filters", "--full-resolution"},
                    transport->rank());
      const Communicator world(transport);
      return o.describe ? describe(world, o) : train(world, o);
    }
    const auto& o = *evaluate_command ? evaluate_options : predict_options;
    trainer::check(o);
    trainer::apply_precision(o);
    trainer::apply_device_options(o);
    const Communicator world(transport);
    return infer(world, o);
  });
}

}  // namespace
}  // namespace mpigrad::classify

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::classify::run(transport, argc, argv);
  });
}
