// What a training step costs, without data or ranks: encoder, head and loss on the dry device.

#include "comm/distributed/grid.h"

#include <nlohmann/json.hpp>
#include "examples/trainers/contrastive/contrastive.h"
#include "models/trainer/contrastive/objective.h"
#include "models/trainer/contrastive/samples.h"
#include "models/trainer/run.h"

namespace mpigrad::contrast {
namespace {

// What there is to describe: the data's samples, or those that data.size and data.channels make up.
NetworkConfig config_of(const TrainOptions& o) {
  NetworkConfig config{.options = o.network,
                       .loss = o.loss,
                       .dtype = std::string(name_of(trainer::dtype_of(o))),
                       .precision = trainer::precision_of(o),
                       .augment = o.augment};
  const auto size = parse_extents("data.size", o.source.size);
  if (o.source.data.empty()) {
    if (size.rank() != 3) throw UsageError("--describe needs --data, or data.size for views that are made up");
    config.extents = size;
    config.channels = o.source.channels > 0 ? o.source.channels : 1;
    if (config.augment.empty()) config.augment = size[0] > 1 ? "volume" : config.channels == 1 ? "handwriting" : "simclr";
    return config;
  }
  const auto source = open(o.source);
  config.extents = size.rank() == 3 ? size : source->extents();
  config.channels = source->channels();
  if (config.augment.empty()) config.augment = default_recipe(*source);
  return config;
}

// The step of a batch of which `x` is the first view; the others are as empty as it is.
class DryStep {
 public:
  DryStep(const TrainOptions& options, const NetworkConfig& config, Network& net, const nn::BatchNormAttributes& norm)
      : o_(options), config_(config), net_(net), norm_(norm) {}

  Tensor operator()(const Tensor& x) {
    {
      // Keys and queues are no part of the tape.
      Untaped scope;
      objective_.reset();
      objective_ = std::make_unique<Objective>(o_, config_, net_, norm_, x.layout(), 0);
    }
    const auto grid = std::static_pointer_cast<const Grid>(x.layout()->grid);
    const auto n = x.layout()->global[0];
    const auto view = [&](const Shape& extents) {
      const auto layout = input_layout(grid, {n, extents[0], extents[1], extents[2], config_.channels});
      return constant(Tensor({layout->box().extents(), x.dtype()}).with_layout(layout));
    };
    Tensors views{x, view(config_.extents)};
    for (int i = 0; i < o_.small_crops; ++i) views.push_back(view(small_extents(o_, config_.extents)));
    data::ViewBatch batch;
    const auto labels = split_layout(grid, {n}, {0, -1, -1, -1});
    batch.labels.push_back(constant(Tensor({labels->box().extents(), DType::int64}).with_layout(labels)));
    return (*objective_)(views, batch, 0).share;
  }

 private:
  const TrainOptions& o_;
  const NetworkConfig& config_;
  Network& net_;
  const nn::BatchNormAttributes& norm_;
  std::unique_ptr<Objective> objective_;
};

}  // namespace

int describe(const Communicator& world, const TrainOptions& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    if (o.cached > 0) throw UsageError("--describe knows batches that are encoded at once, not loss.cached ones");
    const auto grid = trainer::parse_grid(o.grid, 1);
    const auto config = config_of(o);
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
