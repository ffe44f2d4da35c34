// Whole networks under `mpiexec -n P mpi_networks`: the losses of some steps are those of one rank, on every grid of P ranks in
// few dimensions, with halos that convolutions wait for and with those that they do not. Rank 0 prints one line per check; a
// failure ends all ranks with a non-zero exit code. Small and few, because ranks may be more than cores.

#include <cstdio>

#include "comm/launch.h"
#include "tests/support/cases/network_training.h"
#include "tests/support/gradient_check.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

std::vector<GridExtents> grids_of(int ranks) {
  switch (ranks) {
    case 1: return {{}};
    case 2: return {{.depth = 2}, {.height = 2}, {.sample = 2}};
    case 4: return {{.depth = 2, .height = 2}, {.sample = 2, .width = 2}};
    default: return {{.depth = ranks}, {.width = ranks}};
  }
}

template <class Run>
void check(const Communicator& world, const char* name, const Run& run) {
  const auto alone = losses_on_threads(run, {});
  for (const auto& e : grids_of(world.size()))
    for (const auto overlap : {Overlap::always, Overlap::never}) {
      if (overlap == Overlap::never && world.size() > 2) continue;  // threads have them
      const auto difference = largest_difference(losses_of(run, world, e, overlap), alone);
      require(difference < 1e-10, "[networks] {}, sample={} depth={} height={} width={}: losses are off by {}", name, e.sample,
              e.depth, e.height, e.width, difference);
    }
  if (world.rank() == 0) std::printf("ok: %s, %d ranks\n", name, world.size()), std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  return launch(argc, argv, [](const std::shared_ptr<Transport>& transport) {
    using Kind = nn::NormAttributes::Kind;
    const Communicator world(transport);
    check(world, "CosmoFlow", CosmoFlowRun{.options = {.filter_divisor = 8}, .batch = 3, .steps = 2});
    check(world, "CosmoFlow with batch norm",
          CosmoFlowRun{.options = {.batch_norm = true, .filter_divisor = 8}, .batch = 4, .steps = 2});
    for (const auto& [name, kind] : {std::pair{"U-Net, instance norm", Kind::instance},
                                     {"U-Net, group norm", Kind::group},
                                     {"U-Net, layer norm", Kind::layer},
                                     {"U-Net, batch norm", Kind::batch}})
      check(world, name, UNetRun{.options = small_unet(UNet3dVariant::mlperf, kind), .batch = 4, .steps = 2});
    check(world, "U-Net, LBANN", UNetRun{.options = small_unet(UNet3dVariant::lbann, Kind::batch), .batch = 4, .steps = 2});
    auto again = small_unet(UNet3dVariant::mlperf, Kind::instance);
    again.recompute = true;
    check(world, "U-Net, blocks computed again", UNetRun{.options = again, .batch = 4, .steps = 2});
    return 0;
  });
}
