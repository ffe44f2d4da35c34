#include <nlohmann/json.hpp>

#include "examples/trainers/cosmoflow/cosmoflow.h"
#include "models/data/sources/open.h"

namespace mpigrad::cosmoflow {

CosmoFlowVariant variant_of(const std::string& name) {
  if (name == "mlperf") return CosmoFlowVariant::mlperf;
  return name == "pyramid" ? CosmoFlowVariant::pyramid : CosmoFlowVariant::hybrid;
}

CosmoFlowOptions network_options(const TrainOptions& o, std::int64_t targets) {
  return {.variant = variant_of(o.variant),
          .batch_norm = o.batch_norm,
          .norm = {.momentum = o.norm_momentum, .statistics = trainer::statistics_of(o)},
          .keep = o.keep,
          .filters = o.filters,
          .targets = targets};
}

data::SourcePtr open_universes(const trainer::Options& o, const std::string& group, bool targets) {
  auto source = data::open_source(o.data, {.group = group, .targets = targets});
  require_same_extents(*source, "CosmoFlow takes volumes of one size");
  const auto& e = source->extents();
  require(e[0] == e[1] && e[1] == e[2], "[data] CosmoFlow takes cubes, the volumes of {} are {}", o.data, e);
  return source;
}

bool has_parameters(const data::Source& source) {
  const auto& targets = source.target_type();
  return is_floating(targets.type) && !targets.per_cell && !source.target_names().empty();
}

int describe(const Communicator& world, const TrainOptions& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const auto grid = trainer::parse_grid(o.grid, 1, trainer::Channels::split);
    Shape input{o.size, o.size, o.size, 4};
    std::int64_t targets = 4;
    if (!o.data.empty()) {
      const auto source = open_universes(o, "", true);
      if (o.size == 0) input = {source->extents()[0], source->extents()[1], source->extents()[2], 4};
      input[3] = source->channels();
      targets = static_cast<std::int64_t>(source->target_names().size());
    } else if (o.size == 0) {
      input = {128, 128, 128, 4};
    }
    CosmoFlow net(network_options(o, targets));
    const auto description =
        trainer::describe(o, net, {trainer::described_batch(o, grid), input[0], input[1], input[2], input[3]}, grid);
    trainer::print(
        description, o,
        {{"program", "cosmoflow"}, {"variant", o.variant}, {"filters", net.options().filters}, {"batch_norm", o.batch_norm}});
  });
  return 0;
}

}  // namespace mpigrad::cosmoflow
