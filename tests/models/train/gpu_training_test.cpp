// Training, prediction and checkpoints on a GPU against the CPU. The network has neither convolutions nor matrix products, so
// that the tests need no vendor's library.

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>

#include "comm/hdf5/hdf5_file.h"
#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "models/nn/layers.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/train/training.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/models/data/made_source.h"
#include "tests/models/train/values.h"
#include "tests/support/files.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Batch statistics, their running means, memory that is dropped until it is read, pooling, dropout: [N, D, H, W, C] -> [N, C]
class Net : public nn::Module {
 public:
  explicit Net(StatisticsOver over = StatisticsOver::all)
      : first_(*this, "first", {.momentum = 0.5, .statistics = over}),
        second_(*this, "second", {.momentum = 0.5, .statistics = over}) {}
  Tensor operator()(const Tensor& x) override {
    const auto squares = recompute(
        [this](const Tensor& t) {
          const auto y = first_(t);
          auto z = square(y);
          drop_until_read(y);
          return z;
        },
        x);
    const auto joined = join(leaky_relu(squares - 1.0, 0.1), squares, 4);
    const auto both = 0.05 * square(joined);
    drop_until_read(joined);
    const auto c = x.shape()[4];
    const auto pooled = avg_pool(slice(both, 4, 0, c) + slice(both, 4, c, 2 * c), {.kernel = 2, .stride = 2});
    return global_avg_pool(dropout_(second_(pooled)));
  }

 private:
  nn::BatchNorm first_, second_;
  nn::Dropout dropout_{*this, "dropout", {.keep = 0.8}};
};

struct Run {
  DType dtype = DType::float64;
  GridExtents grid{};
  MadeSamples samples{};
  double clip_norm = 0;
  std::int64_t epochs = 3, batch = 4, accumulate = 1;
  StatisticsOver over = StatisticsOver::all;
  bool spread = false;  // uses all available GPUs
};

struct Found {
  Values losses, state, predicted, truth;
};

Values everything(nn::Module& net) {
  Values values;
  for (const auto& value : net.parameters().tensors()) append(values, value);
  for (const auto& [name, value] : net.buffers()) append(values, value);
  return values;
}

const LossFunction mean_square = mse;

data::LoaderOptions loader_options(const Run& run, const GridPtr& grid) {
  return {.grid = grid, .batch = run.batch, .seed = 3, .shuffle = true, .flips = true, .shifts = true, .dtype = run.dtype};
}

// Runs a training; returns the results of rank 0.
Found train(const Run& run, DeviceKind on) {
  Found found;
  std::mutex mutex;
  on_ranks(run.grid.sample * run.grid.depth * run.grid.height * run.grid.width, [&](const Communicator& world) {
    UseDevice device(on);
    if (on == DeviceKind::cuda) cuda::select(run.spread ? world.rank() % cuda::devices() : 0);
    const data::Loader loader(std::make_shared<MadeSource>(run.samples), loader_options(run, make_grid(world, run.grid)));
    Net net(run.over);
    net.build(loader.shape(), {.seed = 5, .dtype = run.dtype});
    for (const auto& [name, value] : net.buffers()) require(value.device() == on, "[test] {} is elsewhere", name);
    Adam adam(net, {.learning_rate = 1e-2, .weight_decay = 1e-3});
    Values losses;
    fit(net, adam, loader, mean_square, world,
        {.epochs = run.epochs,
         .clip_norm = run.clip_norm,
         .accumulate = run.accumulate,
         .after_epoch = [&](const EpochReport& report) {
           losses.push_back(report.loss);
           return std::string();
         }});
    const auto predictions = predict(net, loader);
    const auto state = everything(net);
    const std::scoped_lock lock(mutex);
    if (world.rank() == 0) found = {losses, state, predictions.predicted, predictions.truth};
  });
  return found;
}

void check_equal(const Found& a, const Found& b, double tolerance) {
  CHECK(difference(a.losses, b.losses) < tolerance);
  CHECK(difference(a.state, b.state) < tolerance);
  CHECK(difference(a.predicted, b.predicted) < tolerance);
  CHECK(difference(a.truth, b.truth) == 0);
}

}  // namespace

TEST_CASE("gpu: training is that of a CPU") {
  if (no_gpu("gpu: training is that of a CPU")) return;
  const MadeSamples ragged{.samples = 10};  // the last batch is smaller
  struct Case {
    std::string name;
    Run run;
    double tolerance;
  };
  for (const auto& each :
       std::vector<Case>{{"plain", {}, 1e-10},
                         {"float32", {.dtype = DType::float32}, 1e-5},
                         {"ragged", {.samples = ragged}, 1e-10},
                         {"clipped", {.clip_norm = 1e-2}, 1e-10},
                         {"accumulated", {.batch = 2, .accumulate = 2}, 1e-10},
                         {"two ranks, samples", {.grid = {.sample = 2}, .samples = ragged, .clip_norm = 0.1}, 1e-10},
                         {"two ranks, space", {.dtype = DType::float32, .grid = {.depth = 2}}, 1e-5},
                         {"local statistics", {.grid = {.sample = 2}, .over = StatisticsOver::local}, 1e-10},
                         {"three ranks, a GPU each", {.dtype = DType::float32, .grid = {.sample = 3}, .spread = true}, 1e-5},
                         {"four ranks", {.grid = {.sample = 2, .height = 2}, .over = StatisticsOver::spatial_group}, 1e-10}}) {
    INFO(each.name);
    check_equal(train(each.run, DeviceKind::cuda), train(each.run, DeviceKind::cpu), each.tolerance);
  }
}

TEST_CASE("gpu: the host does not wait in a training step") {
  if (no_gpu("gpu: the host does not wait in a training step")) return;
  for (const int ranks : {1, 2}) {
    INFO(ranks, " ranks");
    const Run run{.dtype = DType::float32, .grid = {.depth = ranks}, .samples = {.samples = 24}, .clip_norm = 0.1, .batch = 2};
    std::atomic<std::int64_t> before{-1}, waits{-1};
    on_ranks(ranks, [&](const Communicator& world) {
      UseDevice device(DeviceKind::cuda);
      const data::Loader loader(std::make_shared<MadeSource>(run.samples), loader_options(run, make_grid(world, run.grid)));
      Net net;
      net.build(loader.shape(), {.seed = 5, .dtype = run.dtype});
      SGD sgd(net, {.learning_rate = 1e-2, .momentum = 0.9});
      world.transport().barrier();
      if (world.rank() == 0) before = cuda::statistics().host_synchronisations;
      world.transport().barrier();
      fit(net, sgd, loader, mean_square, world, {.epochs = 2, .clip_norm = run.clip_norm});
      world.transport().barrier();
      if (world.rank() == 0) waits = cuda::statistics().host_synchronisations - before;
    });
    CHECK(waits == 0);
  }
}

TEST_CASE("gpu: a loss that is not finite is found before anything is saved, and says where it was") {
  if (no_gpu("gpu: a loss that is not finite is found before anything is saved, and says where it was")) return;
  for (const std::int64_t bad : {0, 3, 5}) {
    const MadeSamples samples{.samples = 6, .infinite = bad};
    bool saved = false;
    std::int64_t steps = 0;
    std::string error;
    on_ranks(1, [&](const Communicator& world) {
      UseDevice device(DeviceKind::cuda);
      const data::Loader loader(std::make_shared<MadeSource>(samples), {.batch = 1, .dtype = DType::float64});
      Net net;
      net.build(loader.shape(), {.dtype = DType::float64});
      SGD sgd(net, {});
      const auto after_epoch = [&](const EpochReport&) {
        saved = true;
        return std::string();
      };
      try {
        fit(net, sgd, loader, mean_square, world, {.epochs = 2, .after_epoch = after_epoch});
      } catch (const Error& caught) {
        error = caught.what();
      }
      steps = sgd.steps();
    });
    CHECK(!saved);
    CHECK(error.find(fmt::format("the loss is inf in epoch 1, step {}", bad + 1)) != std::string::npos);
    CHECK(steps <= bad + 2);
  }
}

TEST_CASE("gpu: checkpoints are those of a CPU and move between devices and grids") {
  if (no_gpu("gpu: checkpoints are those of a CPU and move between devices and grids")) return;
  if (without_hdf5("gpu: checkpoints are those of a CPU and move between devices and grids")) return;
  Folder folder;
  const Run run{.samples = {.samples = 8}};
  // Trains epochs [first, last) on a device and a grid, from one file to another.
  const auto go_on = [&](DeviceKind on, const GridExtents& grid, std::int64_t first, std::int64_t last, const std::string& from,
                         const std::string& to) {
    Values state;
    std::mutex mutex;
    on_ranks(grid.sample * grid.depth, [&](const Communicator& world) {
      UseDevice device(on);
      const data::Loader loader(std::make_shared<MadeSource>(run.samples), loader_options(run, make_grid(world, grid)));
      Net net;
      net.build(loader.shape(), {.seed = 5, .dtype = run.dtype});
      Adam adam(net, {.learning_rate = 1e-2});
      AveragedWeights averages(net, {.decay = 0.5});
      if (first > 0) {
        const auto info = load_checkpoint(folder.path / from, net, {.optimizer = &adam, .averages = &averages});
        require(info.epoch == first && adam.steps() == 2 * first && averages.updates() == first, "[test] the counts differ");
      }
      fit(net, adam, loader, mean_square, world, {.epochs = last, .first_epoch = first, .after_epoch = [&](const EpochReport&) {
                                                    averages.update();
                                                    return std::string();
                                                  }});
      save_checkpoint(folder.path / to, net, world, {.optimizer = &adam, .averages = &averages, .info = {.epoch = last}});
      auto mine = everything(net);
      for (const auto& each : adam.state()) append(mine, each.value);
      for (const auto& each : averages.state()) append(mine, each.value);
      const std::scoped_lock lock(mutex);
      if (world.rank() == 0) state = mine;
    });
    return state;
  };
  const auto whole = go_on(DeviceKind::cpu, {}, 0, 4, "", "whole.h5");
  go_on(DeviceKind::cuda, {.depth = 2}, 0, 1, "", "gpu.h5");
  go_on(DeviceKind::cpu, {.sample = 2}, 1, 2, "gpu.h5", "cpu.h5");
  const auto pieces = go_on(DeviceKind::cuda, {}, 2, 4, "cpu.h5", "again.h5");
  CHECK(difference(whole, pieces) < 1e-10);

  const Hdf5Reader a(folder.path / "whole.h5"), b(folder.path / "again.h5");
  const auto in_a = a.datasets(), in_b = b.datasets();
  REQUIRE(in_a.size() == in_b.size());
  for (std::size_t i = 0; i < in_a.size(); ++i) {
    INFO(in_a[i].name);
    CHECK(in_a[i].name == in_b[i].name);
    CHECK(in_a[i].stored == in_b[i].stored);
    CHECK(in_a[i].shape == in_b[i].shape);
    if (in_a[i].kind == Hdf5Dataset::Kind::number)
      CHECK(difference(a.read<double>(in_a[i].name), b.read<double>(in_b[i].name)) < 1e-10);
  }
}
