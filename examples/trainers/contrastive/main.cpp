// Learns representations without labels, and says how good they are.
//
//   mpiexec -n 2 build/examples/contrastive train --data mnist-images-idx3-ubyte.gz --loss nt-xent --out run
//   build/examples/contrastive evaluate --weights run/weights.h5 --data mnist-images-idx3-ubyte.gz --test-fraction 0.125
//
// `train` shows the loss and how a monitor's nearest neighbours fare, `embed` writes embeddings as .npy, `evaluate` prints a
// table and draws neighbours and a projection.

#include "comm/launch.h"

#include <CLI/CLI.hpp>
#include "examples/trainers/contrastive/contrastive.h"

namespace mpigrad::contrast {
namespace {

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  CLI::App app("Contrastive and self-supervised training of encoders for images and volumes, on any grid of ranks.",
               "contrastive");
  app.require_subcommand(1);
  TrainOptions train_options;
  auto* train_command = app.add_subcommand("train", "train an encoder on pairs of views");
  add_options(*train_command, train_options);
  EmbedOptions embed_options;
  auto* embed_command = app.add_subcommand("embed", "write an encoder's features of samples as .npy");
  add_options(*embed_command, embed_options);
  EvaluateOptions evaluate_options;
  add_options(*app.add_subcommand("evaluate", "neighbours, linear probe, retrieval, geometry, few examples"), evaluate_options);

  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  for (auto* options : std::initializer_list<trainer::Options*>{&train_options, &embed_options, &evaluate_options})
    options->given = tool::given_options(app);
  return tool::finish(app, *transport, [&] {
    if (*train_command) {
      check(train_options);
      warn(train_options, transport->rank());
      trainer::apply_precision(train_options);
      trainer::apply_device_options(train_options);
      const Communicator world(transport);
      return train_options.describe ? describe(world, train_options) : train(world, train_options);
    }
    if (*embed_command) {
      warn(embed_options, transport->rank());
      trainer::apply_device_options(embed_options);
      return embed(Communicator(transport), embed_options);
    }
    check(evaluate_options);
    warn(evaluate_options, transport->rank());
    trainer::apply_device_options(evaluate_options);
    return evaluate(Communicator(transport), evaluate_options);
  });
}

}  // namespace
}  // namespace mpigrad::contrast

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::contrast::run(transport, argc, argv);
  });
}
