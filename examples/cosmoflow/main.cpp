// Trains CosmoFlow: cosmological parameters from volumes of matter, on any grid of ranks.
//
//   mpiexec -n 2 build/examples/cosmoflow --data universes --grid depth=2 --batch-norm --flips --shifts
//   build/examples/cosmoflow --describe --size 512 --grid sample=2,depth=8
//
// While it trains it shows the loss, and at the end each parameter's error on the test set beside that of predicting the mean.

#include "comm/launch.h"

#include <CLI/CLI.hpp>
#include "examples/cosmoflow/cosmoflow.h"

namespace mpigrad::cosmoflow {
namespace {

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  const Communicator world(transport);
  CLI::App app("Trains CosmoFlow (Oyama et al. 2020, or the MLPerf HPC variant) on volumes that are split over ranks.",
               "cosmoflow");
  Options o;
  o.out = "cosmoflow-out";
  app.add_option("--data", o.data, "an HDF5 file of CosmoFlow's layout, or a folder of them")->group("Data");
  app.add_option("--test-fraction", o.test_fraction, "of the samples, drawn at random, that are kept for the test")
      ->check(tool::number_between(0.001, 0.999))
      ->capture_default_str()
      ->group("Data");
  trainer::add_data_options(app, o);
  app.add_flag("--shifts", o.shifts, "shift volumes at random, periodically; for periodic boxes")->group("Data");
  trainer::add_grid_option(app, o);
  trainer::add_device_options(app, o);
  app.add_option("--variant", o.variant, "hybrid (seven convolutions, average pooling) or mlperf (five, max pooling)")
      ->check(CLI::IsMember({"hybrid", "mlperf"}))
      ->capture_default_str()
      ->group("Network");
  app.add_flag("--batch-norm", o.batch_norm, "after every convolution; of the hybrid variant")->group("Network");
  trainer::add_norm_options(app, o);
  trainer::add_training_options(app, o);
  trainer::add_stop_options(app, o);
  trainer::add_file_options(app, o);
  trainer::add_describe_options(app, o);
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  o.given = tool::given_options(app);
  return tool::finish(app, *transport, [&] {
    trainer::check(o);
    trainer::apply_precision(o);
    trainer::apply_device_options(o);
    if (o.variant == "mlperf" && o.batch_norm) throw trainer::UsageError("--batch-norm: the mlperf variant has none");
    for (const auto* option : {"--statistics", "--norm-momentum"})
      if (o.given.contains(option) && !o.batch_norm) throw trainer::UsageError(fmt::format("{} is of --batch-norm", option));
    trainer::warn(o, {"--variant", "--batch-norm"}, world.rank());
    if (o.describe) return describe(world, o);
    return o.epochs == 0 ? evaluate(world, o) : train(world, o);
  });
}

}  // namespace
}  // namespace mpigrad::cosmoflow

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::cosmoflow::run(transport, argc, argv);
  });
}
