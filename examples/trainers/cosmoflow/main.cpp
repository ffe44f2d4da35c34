// CosmoFlow: cosmological parameters from volumes of matter, on any grid of ranks.
//
//   mpiexec -n 2 build/examples/cosmoflow train --data universes --grid depth=2 --batch-norm --flips --shifts --out run
//   build/examples/cosmoflow evaluate --weights run/weights.h5 --data others --out scores
//   build/examples/cosmoflow predict --weights run/weights.h5 --data unknown --out predictions
//   build/examples/cosmoflow train --describe --size 512 --grid sample=2,depth=8
//
// `train` shows the loss, and at the end each parameter's error on the test set beside those of predicting the mean and of a
// ridge regression on power spectra (baseline.h), as `evaluate` does for other universes; `predict` needs none that are known.

#include "comm/launch.h"

#include <CLI/CLI.hpp>
#include "examples/trainers/cosmoflow/cosmoflow.h"

namespace mpigrad::cosmoflow {
namespace {

void add_options(CLI::App& app, TrainOptions& o) {
  o.out = "cosmoflow-out";
  app.add_option("--data", o.data,
                 "universes: HDF5 files of CosmoFlow's layout, MLPerf's TFRecord files, or what `pack` makes of them")
      ->group("Data");
  app.add_option("--test-fraction", o.test_fraction, "of the samples, drawn at random, that are kept for the test")
      ->check(tool::number_between(0.001, 0.999))
      ->capture_default_str()
      ->group("Data");
  trainer::add_data_options(app, o);
  trainer::add_store_option(app, o);
  app.add_flag("--transpositions", o.transpositions, "exchange spatial axes at random: with --flips the 48 symmetries of a cube")
      ->group("Data");
  app.add_flag("--shifts", o.shifts, "shift volumes at random, periodically; for periodic boxes")->group("Data");
  trainer::add_grid_option(app, o);
  trainer::add_communication_option(app, o);
  trainer::add_layer_grid_option(app, o);
  trainer::add_sharded_weights_option(app, o);
  trainer::add_device_options(app, o);
  app.add_option("--variant", o.variant,
                 "hybrid (seven convolutions, average pooling), mlperf (five, max pooling), or pyramid (statistics at several "
                 "scales, for periodic boxes; of thousands of weights, not millions)")
      ->check(CLI::IsMember({"hybrid", "mlperf", "pyramid"}))
      ->capture_default_str()
      ->group("Network");
  app.add_option("--filters", o.filters,
                 "of the first convolution; all other layers grow and shrink with it (default: 16, mlperf 32)")
      ->check(tool::number_between(1, 4096))
      ->group("Network");
  app.add_option("--last-layer", o.last_layer,
                 "of pyramid, how it begins: fitted, by ridge regression of the training set's parameters on the features of the "
                 "untrained network, or random")
      ->check(CLI::IsMember({"fitted", "random"}))
      ->capture_default_str()
      ->group("Network");
  app.add_flag("--batch-norm", o.batch_norm, "after every convolution; of the hybrid variant")->group("Network");
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
  o.out = scored ? "cosmoflow-scores" : "cosmoflow-predictions";
  app.add_option("--data", o.data,
                 scored
                     ? "universes: HDF5 files of CosmoFlow's layout, MLPerf's TFRecord files, or what `pack` makes of them"
                     : "universes, whether or not their parameters are known, or counts in any format that `contrastive` reads")
      ->group("Data");
  app.add_option("--group", o.group, "of HDF5 that `pack` wrote: where the datasets are")->group("Data");
  trainer::add_infer_options(app, o, scored, "test");
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  CLI::App app("CosmoFlow (Oyama et al. 2020, or the MLPerf HPC variant): parameters from volumes that are split over ranks.",
               "cosmoflow");
  app.require_subcommand(1);
  TrainOptions train_options;
  auto* train_command = app.add_subcommand("train", "train on universes whose parameters are known");
  add_options(*train_command, train_options);
  InferOptions evaluate_options;
  auto* evaluate_command = app.add_subcommand("evaluate", "predict known parameters: errors, a picture");
  add_options(*evaluate_command, evaluate_options, true);
  InferOptions predict_options;
  add_options(*app.add_subcommand("predict", "predict unknown parameters"), predict_options, false);
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  for (auto* options : std::initializer_list<trainer::Options*>{&train_options, &evaluate_options, &predict_options})
    options->given = tool::given_options(app);
  return tool::finish(app, *transport, [&] {
    if (*train_command) {
      const auto& o = train_options;
      trainer::check(o);
      trainer::apply_precision(o);
      trainer::apply_device_options(o);
      if (o.variant != "hybrid" && o.batch_norm)
        throw trainer::UsageError(fmt::format("--batch-norm: the {} variant has none", o.variant));
      if (o.variant != "pyramid" && o.given.contains("--last-layer"))
        throw trainer::UsageError("--last-layer is of --variant pyramid");
      if (o.variant == "pyramid" && o.given.contains("--last-layer") && !o.weights.empty())
        throw trainer::UsageError("--last-layer: the layer begins as in the file of --weights");
      if (o.variant == "pyramid" && (o.graph || is_half(trainer::compute_of(o).value_or(DType::float32))))
        throw trainer::UsageError("--variant pyramid has neither --graph nor 16 bits: --precision float32 or tf32");
      for (const auto* option : {"--statistics", "--norm-momentum"})
        if (o.given.contains(option) && !o.batch_norm) throw trainer::UsageError(fmt::format("{} is of --batch-norm", option));
      trainer::warn(o, {"--variant", "--filters", "--batch-norm", "--last-layer"}, transport->rank());
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
}  // namespace mpigrad::cosmoflow

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::cosmoflow::run(transport, argc, argv);
  });
}
