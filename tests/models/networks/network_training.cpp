#include "tests/models/networks/network_training.h"

#include <cmath>

#include "comm/collectives/collectives.h"
#include "framework/optim/optimizer.h"
#include "models/losses/segmentation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"

namespace mpigrad::testing {
namespace {

template <class Run>
std::vector<double> on_threads(const Run& run, const GridExtents& e, Overlap overlap) {
  std::vector<double> losses;
  const auto device = current_device();
  run_threads(ranks_of(e), [&](const std::shared_ptr<Transport>& transport) {
    const UseDevice use(device);
    const Communicator world(transport);
    auto mine = losses_of(run, world, e, overlap);
    if (world.rank() == 0) losses = std::move(mine);
  });
  return losses;
}

}  // namespace

std::vector<double> losses_of(const CosmoFlowRun& run, const Communicator& world, const GridExtents& extents, Overlap overlap) {
  const auto grid = make_grid(world, extents, overlap);
  const auto layout = activation_layout(grid, {run.batch, run.extent, run.extent, run.extent, 4});
  const auto target_layout = split_layout(grid, {run.batch, 4}, {0, -1, -1, -1});
  CosmoFlow net(run.options);
  net.build(layout, {.seed = 1, .dtype = DType::float64});
  Adam adam(net, {.learning_rate = 1e-3});
  std::vector<std::pair<Tensor, Tensor>> batches;
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    const Philox random{7, batch};
    batches.emplace_back(constant(random_normal(layout->global, random, 0, 1, DType::float64, layout)),
                         constant(random_uniform(target_layout->global, random.child(1), -1, 1, DType::float64, target_layout)));
  }
  std::vector<double> losses;
  for (int step = 0; step < run.steps; ++step) {
    net.set_step(step);
    const auto& [x, y] = batches[static_cast<std::size_t>(step % 4)];
    Tape tape(net);
    const auto share = mse(net(x), y);
    adam.step(tape.gradient(share));
    losses.push_back(total(share, world));
  }
  return losses;
}

std::vector<double> losses_of(const UNetRun& run, const Communicator& world, const GridExtents& extents, Overlap overlap) {
  const auto grid = make_grid(world, extents, overlap);
  const auto& e = run.extents;
  const auto layout = activation_layout(grid, {run.batch, e[0], e[1], e[2], 2});
  const auto labels_layout = split_layout(grid, {run.batch, e[0], e[1], e[2]}, {0, 1, 2, 3});
  UNet3d net(run.options);
  net.build(layout, {.seed = 1, .dtype = DType::float64});
  SGD sgd(net, {.learning_rate = 0.05, .momentum = 0.9, .nesterov = true});
  std::vector<double> losses;
  for (int step = 0; step < run.steps; ++step) {
    const Philox random{7, static_cast<std::uint64_t>(step % 2)};
    const auto x = constant(random_normal(layout->global, random, 0, 1, DType::float64, layout));
    const auto uniform = random_uniform(labels_layout->global, random.child(1), 0, 3, DType::float64, labels_layout);
    const auto labels = constant(cast(uniform, DType::int32));
    Tape tape(net);
    const auto share = segmentation::dice_cross_entropy_loss(net(x), labels, {.background = false});
    sgd.step(tape.gradient(share));
    losses.push_back(total(share, world));
  }
  return losses;
}

std::vector<double> losses_on_threads(const CosmoFlowRun& run, const GridExtents& extents, Overlap overlap) {
  return on_threads(run, extents, overlap);
}
std::vector<double> losses_on_threads(const UNetRun& run, const GridExtents& extents, Overlap overlap) {
  return on_threads(run, extents, overlap);
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  require(a.size() == b.size() && !a.empty(), "[test] {} losses and {}", a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    require(std::isfinite(a[i]) && std::isfinite(b[i]), "[test] losses {} and {} of step {}", a[i], b[i], i);
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return largest;
}

UNet3dOptions small_unet(UNet3dVariant variant, nn::NormAttributes::Kind kind) {
  UNet3dOptions options{.variant = variant, .norm = nn::NormAttributes{.kind = kind, .groups = 2}};
  options.filters =
      variant == UNet3dVariant::lbann ? std::vector<std::int64_t>{2, 4, 4, 6} : std::vector<std::int64_t>{4, 4, 6, 6};
  return options;
}

}  // namespace mpigrad::testing
