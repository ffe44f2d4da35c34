// Learns latent variables of folding from contact maps of proteins, by a convolutional variational autoencoder.
//
//   build/examples/folding --chains 20 --frames 1000 --out chains.h5
//   mpiexec -n 2 build/examples/contact_maps train --data chains.h5 --out run
//
// `train` keeps whole chains for validation. It shows which share of their contacts the network reproduces, and how well a linear
// fit reads the fraction of native contacts from the latent variables.

#include "comm/launch.h"
#include "comm/process/threads.h"
#include "examples/trainers/contact_maps/options.h"
#include "models/trainer/recipe/commands.h"

namespace mpigrad::contacts {
namespace {

using trainer::above, trainer::between, trainer::whole;

void add_keys(trainer::Keys& keys, TrainOptions& o) {
  keys.add("data.path", o.data, "contact maps: HDF5, or .npy of [n, R, R] or [n, R R]").with_flag("--data");
  keys.add("data.maps", o.names.maps, "dataset of the maps in an HDF5 file");
  keys.add("data.native", o.names.native, "fractions of native contacts: a dataset of the HDF5 file, or a .npy file");
  keys.add("data.chain", o.names.chain, "numbers of the chains that maps are frames of: a dataset, or a .npy file");
  keys.add("data.validation_fraction", o.validation_fraction, between(0.001, 0.999),
           "part of the chains, the last ones, that is kept for validation; of one chain, the last maps");
  trainer::add_reading_keys(keys, o);
  keys.add("network.filters", o.filters, whole(1, 4096), "filters of each convolution");
  keys.add("network.hidden", o.hidden, whole(1, 1 << 20), "width of the hidden layers");
  keys.add("network.latent", o.latent, whole(1, 4096), "number of latent variables");
  trainer::add_training_keys(keys, o);
  keys.add("optimizer.mean_square", o.mean_square, between(0, 0.999999), "decay of the mean square of rmsprop");
  trainer::add_precision_keys(keys, o);
  trainer::add_grid_keys(keys, o);
  trainer::add_checkpoint_keys(keys, o);
  trainer::add_report_keys(keys, o);
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  TrainOptions options;
  options.out = "contact_maps-out", options.optimizer = "rmsprop", options.schedule = "constant", options.batch = 512;
  return trainer::run_commands(
      transport, argc, argv, "contact_maps",
      "Learns latent variables of folding from contact maps, by a variational autoencoder.",
      {{.name = "train",
        .help = "train on maps; scores and a picture of the latent variables",
        .options = options,
        .keys = [&](trainer::Keys& keys) { add_keys(keys, options); },
        .flags = [&](CLI::App& app) { trainer::add_training_flags(app, options), trainer::add_size_flag(app, options); },
        .run =
            [&](const Communicator& world) {
              trainer::check(options);
              return options.describe ? describe(world, options) : train(world, options);
            }}});
}

}  // namespace
}  // namespace mpigrad::contacts

int main(int argc, char** argv) {
  mpigrad::restart_with_short_waits(argv);
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::contacts::run(transport, argc, argv);
  });
}
