// The cost of a training step, computed without data or ranks: encoder, head and loss in a dry run.

#include <functional>
#include <nlohmann/json.hpp>

#include "examples/trainers/contrastive/contrastive.h"
#include "models/trainer/contrastive/objective.h"
#include "models/trainer/contrastive/samples.h"
#include "models/trainer/run.h"

namespace mpigrad::contrast {

int describe(const Communicator& world, const TrainOptions& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    if (o.cached > 0) throw UsageError("--describe needs batches that are encoded at once, without loss.cached");
    const auto grid = trainer::parse_grid(o.grid, 1);
    const auto source = o.source.data.empty() ? nullptr : open(o.source);
    const auto config = config_of(o, source.get());
    const nn::BatchNormAttributes norm{.momentum = o.norm_momentum, .statistics = trainer::statistics_of(o)};
    auto described = o;
    described.data = o.source.data, described.batch = trainer::described_batch(o, grid);
    Network net(config, norm);
    DryStep step(described, config, net, norm);
    const auto description = trainer::describe(described, net, config.input(described.batch), grid, std::ref(step));
    trainer::print(description, o, {{"program", "contrastive"}, {"loss", o.loss}, {"encoder", o.network.encoder}});
  });
  return 0;
}

}  // namespace mpigrad::contrast
