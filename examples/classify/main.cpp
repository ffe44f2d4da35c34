// Trains a classifier of volumes, on any grid of ranks.
//
//   mpiexec -n 2 build/examples/classify --data adrenal64.h5 --grid depth=2 --flips
//
// The file has groups `train` and `val`, each with `volume` [n, D, H, W, C] and integers `label` [n]. After every epoch it shows
// loss, accuracy and area under the ROC curve on the second.

#include "comm/launch.h"

#include <CLI/CLI.hpp>
#include "examples/classify/classify.h"

namespace mpigrad::classify {
namespace {

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  const Communicator world(transport);
  CLI::App app("Trains a small classifier on volumes that are split over ranks.", "classify");
  Options o;
  o.out = "classify-out";
  o.batch = 16;
  o.learning_rate = 2e-3;
  app.add_option("--data", o.data, "an HDF5 file with groups of volumes and labels")->group("Data");
  const auto name = [&](const char* option, std::string& value, const char* text) {
    app.add_option(option, value, text)->capture_default_str()->group("Data");
  };
  name("--train-group", o.train_group, "group to train on");
  name("--validation-group", o.validation_group, "group to score on");
  name("--volume", o.volume, "dataset of volumes in a group");
  name("--label", o.label, "dataset of labels in a group");
  trainer::add_data_options(app, o);
  trainer::add_grid_option(app, o);
  trainer::add_device_options(app, o);
  app.add_option("--filters", o.filters, "of the first convolution; each further one has twice as many")
      ->check(tool::whole_number(1, 4096))
      ->capture_default_str()
      ->group("Network");
  app.add_flag("--full-resolution", o.full_resolution, "do not average 2^3 voxels first")->group("Network");
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
    std::set<std::string> own{"--validation-group", "--volume", "--label", "--filters", "--full-resolution"};
    if (o.describe) own.insert("--train-group");
    trainer::warn(o, own, world.rank());
    if (o.describe) return describe(world, o);
    return o.epochs == 0 ? evaluate(world, o) : train(world, o);
  });
}

}  // namespace
}  // namespace mpigrad::classify

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::classify::run(transport, argc, argv);
  });
}
