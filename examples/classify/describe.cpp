#include "examples/classify/classify.h"

#include <nlohmann/json.hpp>

namespace mpigrad::classify {

NetworkOptions network_options(const Options& o, std::int64_t classes) {
  NetworkOptions options{.classes = classes,
                         .filters = o.filters,
                         .pool_first = !o.full_resolution,
                         .norm = {.momentum = o.norm_momentum, .statistics = trainer::statistics_of(o)}};
  if (o.keep > 0) options.keep = o.keep;
  return options;
}

int describe(const Communicator& world, const Options& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const auto grid = trainer::parse_grid(o.grid, 1);
    const std::int64_t size = o.size != 0 ? o.size : 128;
    Shape input{trainer::described_batch(o, grid), size, size, size, 1};
    if (!o.data.empty()) {
      const data::ArraySource source(o.data, o.train_group, {.volume = o.volume, .label = o.label});
      for (int d = 0; d < 3 && o.size == 0; ++d) input[d + 1] = source.extents()[d];
      input[4] = source.channels();
    }
    Network net(network_options(o, 2));
    trainer::print(trainer::describe(o, net, input, grid), o, {{"program", "classify"}});
  });
  return 0;
}

}  // namespace mpigrad::classify
