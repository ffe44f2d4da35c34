// Learns representations without labels, and measures how good they are.
//
//   mpiexec -n 2 build/examples/contrastive train --data mnist-images-idx3-ubyte.gz --loss nt-xent --out run
//   build/examples/contrastive evaluate --weights run/weights.h5 --data mnist-images-idx3-ubyte.gz --test-fraction 0.125
//
// `train` shows the loss and the accuracy of nearest neighbours, `embed` writes embeddings as .npy, `evaluate` prints a table and
// draws neighbours and a projection.

#include "comm/launch.h"
#include "comm/process/threads.h"
#include "examples/trainers/contrastive/contrastive.h"
#include "models/trainer/recipe/commands.h"

namespace mpigrad::contrast {
namespace {

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  TrainOptions train_options;
  EmbedOptions embed_options;
  EvaluateOptions evaluate_options;
  const auto train_or_describe = [&](const Communicator& world) {
    check(train_options);
    warn(train_options, world.rank());
    return train_options.describe ? describe(world, train_options) : train(world, train_options);
  };
  const auto embed_samples = [&](const Communicator& world) {
    warn(embed_options, world.rank());
    return embed(world, embed_options);
  };
  const auto evaluate_features = [&](const Communicator& world) {
    check(evaluate_options);
    warn(evaluate_options, world.rank());
    return evaluate(world, evaluate_options);
  };
  return trainer::run_commands(
      transport, argc, argv, "contrastive",
      "Contrastive and self-supervised training of encoders for images and volumes, on any grid of ranks.",
      {{.name = "train",
        .help = "train an encoder on pairs of views",
        .options = train_options,
        .keys = [&](trainer::Keys& keys) { add_keys(keys, train_options); },
        .flags = [&](CLI::App& app) { trainer::add_training_flags(app, train_options); },
        .run = train_or_describe},
       {.name = "embed",
        .help = "write an encoder's features of samples as .npy",
        .options = embed_options,
        .keys = [&](trainer::Keys& keys) { add_keys(keys, embed_options); },
        .flags = [&](CLI::App& app) { trainer::add_run_flags(app, embed_options); },
        .run = embed_samples,
        .all_flags = true},
       {.name = "evaluate",
        .help = "neighbours, linear probe, retrieval, geometry, few examples",
        .options = evaluate_options,
        .keys = [&](trainer::Keys& keys) { add_keys(keys, evaluate_options); },
        .flags = [&](CLI::App& app) { trainer::add_run_flags(app, evaluate_options); },
        .run = evaluate_features,
        .all_flags = true}});
}

}  // namespace
}  // namespace mpigrad::contrast

int main(int argc, char** argv) {
  mpigrad::restart_with_short_waits(argv);
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::contrast::run(transport, argc, argv);
  });
}
