// Whole networks under `mpiexec -n P mpi_networks`: the losses of some steps equal those of one rank, on every grid of P ranks in
// few dimensions, with and without overlap of halo exchanges and convolutions; batches that the ranks read together; and a
// simulation. Rank 0
// prints one line per check; a failure ends all ranks with a non-zero exit code. Small and few, because there may be more ranks
// than cores.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

#include "comm/hdf5/hdf5_file.h"
#include "comm/launch.h"
#include "models/data/data.h"
#include "models/data/sources/function.h"
#include "models/nn/describe.h"
#include "models/simulation/simulation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/comm/hdf5/tensor_cases.h"
#include "tests/models/networks/network_training.h"
#include "tests/models/networks/split_networks.h"
#include "tests/models/nn/pipelined.h"
#include "tests/models/train/divided_training.h"
#include "tests/support/distributed.h"
#include "tests/support/errors.h"
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

// An optimizer whose work the ranks divide: the same weights as with one that is not divided.
void check_divided_optimizer(const Communicator& world) {
  for (const bool clips : {false, true}) {
    const divided::Case c{.clip = clips ? 0.05 : 0};
    const auto own = divided::Training(world, c, false).run(0, 3), whole = divided::Training(world, c, true).run(0, 3);
    double largest = 0;
    for (std::size_t i = 0; i < own.parameters.size(); ++i)
      for (std::size_t j = 0; j < own.parameters[i].size(); ++j)
        largest = std::max(largest, std::abs(own.parameters[i][j] - whole.parameters[i][j]));
    // Both add up two ranks in one order; of more, MPI chooses the order of an allreduce.
    require(largest <= (clips || world.size() > 2 ? 1e-4 : 0), "[networks] the divided optimizer's weights are off by {}",
            largest);
    require(own.work.starts_with("each of") == (world.size() > 1), "[networks] {}", own.work);
  }
  if (world.rank() == 0) std::printf("ok: a divided optimizer, %d ranks\n", world.size()), std::fflush(stdout);
}

template <class Run>
void check(const Communicator& world, const char* name, const Run& run) {
  const auto alone = losses_on_threads(run, {});
  for (const auto& e : grids_of(world.size()))
    for (const auto overlap : {Overlap::always, Overlap::never}) {
      const auto difference = largest_difference(losses_of(run, world, e, overlap), alone);
      require(difference < 1e-10, "[networks] {}, sample={} depth={} height={} width={}: losses are off by {}", name, e.sample,
              e.depth, e.height, e.width, difference);
    }
  if (world.rank() == 0) std::printf("ok: %s, %d ranks\n", name, world.size()), std::fflush(stdout);
}

// Layers split along channels, on grids of their own, and weights stored in parts.
struct Mixed {
  std::string network;
  GridExtents grid;
  std::vector<std::pair<std::string, GridExtents>> layers{};
  bool sharded = false;
};
std::vector<Mixed> mixed_for(int ranks) {
  const std::string cosmoflow = "CosmoFlow with batch norm", alexnet = "AlexNet, each layer its own way",
                    unet = "U-Net of strides and instance norm", resnet = "ResNet";
  switch (ranks) {
    case 1: return {{cosmoflow, {}}};
    case 2:
      return {{cosmoflow, {.depth = 2}, {{"conv5-7", {.sample = 2}}, {"linear1-2", {.channel = 2}}}},
              {cosmoflow, {.sample = 2}, {}, true},
              {alexnet, {.channel = 2}},
              {unet, {.depth = 2}, {{"bottom", {.channel = 2}}}},
              {resnet, {.height = 2}, {{"stage4", {.sample = 2}}}}};
    case 4:
      return {{cosmoflow, {.depth = 2, .height = 2}, {{"conv5-7", {.channel = 4}}, {"linear1", {.sample = 2, .channel = 2}}}},
              {cosmoflow, {.sample = 2, .depth = 2}, {}, true},
              {alexnet, {.depth = 2, .channel = 2}}};
    default: return {{cosmoflow, {.depth = ranks}, {{"conv4-7", {.channel = ranks}}}}, {alexnet, {.channel = ranks}}};
  }
}

void check_mixed(const Communicator& world) {
  const auto networks = split_networks();
  for (const auto& mixed : mixed_for(world.size())) {
    const auto network =
        std::find_if(networks.begin(), networks.end(), [&](const auto& each) { return each.name == mixed.network; });
    const auto trained = [&](const GridPtr& grid) {
      nn::BuildOptions options{.sharded_weights = mixed.sharded};
      if (grid)
        for (const auto& [layers, extents] : mixed.layers) options.grids.push_back({layers, make_grid(world, extents)});
      SplitTraining training(*network, grid, grid ? options : nn::BuildOptions{});
      Adam adam(*training.net, {.learning_rate = 0.002, .epsilon = 1e-2});
      training.train(adam, 0, 2);
      return everything_of(*training.net, &adam);
    };
    require_trained(mixed.network, trained(make_grid(world, mixed.grid)), trained(nullptr));
    if (world.rank() == 0)
      std::printf("ok: %s, split in several ways, %d ranks\n", mixed.network.c_str(), world.size()), std::fflush(stdout);
  }
}

// Samples read from HDF5 files by all ranks together equal, bit for bit, samples of which each rank reads its block; a failed
// read of one rank is an error on all.
void check_collective_reading(const Communicator& world) {
  if (!hdf5_available()) return;
  auto& all = world.transport();
  std::int64_t id = getpid();
  all.bcast(&id, 1, DType::int64, 0);
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("mpigrad_networks_{}", id);
  if (all.rank() == 0) {
    std::filesystem::create_directories(folder);
    std::vector<std::int16_t> counts(6 * 5 * 7 * 2);
    for (std::size_t s = 0; s < 5; ++s) {
      for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<std::int16_t>((i * 31 + 7 * s) % 901);
      Hdf5Writer writer(folder / fmt::format("{}.hdf5", s), true);
      writer.write("full", {6, 5, 7, 2}, DType::int16, counts.data());
      writer.write<float>("unitPar", std::array<float, 2>{0.5F, static_cast<float>(s)});
      writer.commit();
    }
  }
  all.barrier();
  check_hdf5_tensors(world, folder);
  for (const auto& extents : grids_of(all.size()))
    for (const bool ahead : {false, true}) {
      data::LoaderOptions options{.grid = make_grid(world, extents),
                                  .batch = 2,
                                  .seed = 3,
                                  .shuffle = true,
                                  .flips = ahead,
                                  .ghosts = 1,
                                  .prefetch = 2,
                                  .assemble_ahead = ahead,
                                  .cache_bytes = 0,
                                  .piece_bytes = 200};
      const data::Loader alone(folder, options);
      options.collective = true;
      const data::Loader together(folder, options);
      for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        auto expected = alone.epoch(epoch);
        auto at = expected.begin();
        for (const auto& [x, y] : together.epoch(epoch)) {
          require(x.without_layout().to_vector() == at->x.without_layout().to_vector() &&
                      y.without_layout().to_vector() == at->y.without_layout().to_vector(),
                  "[networks] another batch where ranks read together");
          ++at;
        }
        require(at == expected.end(), "[networks] fewer batches where ranks read together");
      }
    }
  if (all.size() == 2) {
    data::FunctionSamples made{.size = 1, .extents = {6, 5, 7}, .target_names = {"a"}};
    made.values = [&](std::int64_t sample, const Box&, std::span<float> out) {
      require(all.rank() == 0, "[test] sample {} is lost", sample);
      std::fill(out.begin(), out.end(), 1.0F);
    };
    made.targets = [](std::int64_t) { return std::vector<double>{0}; };
    const data::Loader loader(
        std::make_shared<data::FunctionSource>(made),
        {.grid = make_grid(world, {.depth = 2}), .ghosts = 1, .prefetch = 0, .collective = true, .piece_bytes = 1});
    const auto text = error_text([&] { (void)loader.batch(0, 0); });
    require(has(text, "[test] sample 0 is lost"), "[networks] rank {} is told: '{}'", all.rank(), text);
  }
  all.barrier();
  if (all.rank() == 0) {
    std::filesystem::remove_all(folder);
    std::printf("ok: tensors in HDF5 files, samples that ranks read together, %d ranks\n", all.size()), std::fflush(stdout);
  }
}

// Networks in pipelines equal those of one rank, and the memory of each stage is what describe() predicts.
void check_pipelines(const Communicator& world) {
  if (world.size() == 1 || world.size() == 3) return;
  const int stages = 2, depth = world.size() / stages;
  for (const auto& network : split_networks()) {
    if (!network.name.starts_with("U-Net") && network.name != "CosmoFlow with batch norm") continue;
    for (const auto schedule : {nn::PipelineSchedule::fill_drain, nn::PipelineSchedule::one_forward_one_backward}) {
      Pipelined pipelined(world, network, {.grid = {.depth = depth, .stage = stages}, .schedule = schedule});
      pipelined.train(3);
      require_trained(network.name + " in a pipeline", state_of(*pipelined.net, *pipelined.optimizer), trained_alone(network, 3));
    }
  }
  constexpr std::int64_t micro_batches = 4;
  const Shape batch{micro_batches, 32, 32, 32, 1}, part{1, 32, 32, 32, 1};
  const auto make = [] { return UNet3dOptions{.filters = {8, 16, 24}}; };
  const auto optimizer = [](Parameters& parameters) { return std::make_unique<Adam>(parameters); };
  DescribeOptions options{.grid = {.depth = depth, .stage = stages}, .accumulate = micro_batches, .optimizer = optimizer};
  UNet3d dry(make());
  const auto expected = describe(dry, batch, options);
  const auto pipeline = nn::Pipeline::make(world, {.grid = options.grid});
  UNet3d net(make());
  const auto layout = input_layout(pipeline->grid(), part);
  const auto before = memory_statistics(DeviceKind::cpu).current_bytes;
  net.build(layout, {.pipeline = pipeline});
  const auto adam_of_stage = optimizer(net.parameters());
  reset_peak_memory(DeviceKind::cpu);
  for (int repetition = 0; repetition < 2; ++repetition) {
    std::vector<Tensor> x;
    for (std::int64_t m = 0; m < micro_batches; ++m)
      x.push_back(constant(random_normal(part, {.key = 1}, 0, 1, DType::float32, layout)));
    const auto step = pipeline->gradient(
        net, micro_batches, [&](std::int64_t m) { return sum(net(pipeline->input(x[static_cast<std::size_t>(m)]))); });
    adam_of_stage->step(step.gradients);
  }
  const auto found = static_cast<double>(memory_statistics(DeviceKind::cpu).peak_bytes - before);
  const auto predicted = static_cast<double>(expected.stages.at(static_cast<std::size_t>(pipeline->stage())).peak_bytes);
  // Less where the other stage receives at once what this one sends, and more where up to two messages wait.
  require(found / predicted > 0.6 && found / predicted < 1.15, "[networks] stage {} has {} bytes of tensors, {} are predicted",
          pipeline->stage(), found, predicted);
  if (world.rank() == 0)
    std::printf("ok: pipelines, %d ranks; memory %.3f of the prediction\n", world.size(), found / predicted), std::fflush(stdout);
}

// A loop in time with snapshots around a solve, on finite differences: values and gradients have the bits of one rank.
void check_simulation(const Communicator& world) {
  const Shape shape{1, 7, 3, 5, 1};
  const auto simulated = [&](const LayoutPtr& layout) {
    const auto u = global_tensor(shape, 1, layout), k = square(global_tensor(shape, 2, layout)) + 0.5;
    Tape tape;
    const auto implicit_step = [k](const Tensor& now) {
      const auto A = [k](const Tensor& x) { return k * x - 0.3 * fields::laplacian(x, {.order = 4}); };
      return sin(solve(A, now, {.tolerance = 1e-12}));
    };
    const auto after = time_steps(implicit_step, u, 4, {.snapshots = 2});
    auto all = tape.gradient(sum(square(fields::divergence(fields::gradient(after)))), {u, k});
    all.push_back(after);
    return all;
  };
  const auto alone = simulated({});
  for (const auto& e : grids_of(world.size())) {
    const auto layout = activation_layout(make_grid(world, e), shape);
    const auto split = simulated(layout);
    for (std::size_t i = 0; i < split.size(); ++i) {
      const double off = largest_difference(split[i].without_layout(), part_of(alone[i], layout).without_layout());
      require(off == 0, "[simulation] depth={} height={} width={}: result {} is off by {}", e.depth, e.height, e.width, i, off);
    }
  }
  if (world.rank() == 0) std::printf("ok: a simulation, %d ranks\n", world.size()), std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  return launch(argc, argv, [](const std::shared_ptr<Transport>& transport) {
    using Kind = nn::NormAttributes::Kind;
    const Communicator world(transport);
    check_collective_reading(world);
    check_mixed(world);
    check_pipelines(world);
    check_simulation(world);
    check_divided_optimizer(world);
    check(world, "CosmoFlow", CosmoFlowRun{.options = {.filters = 2}, .batch = 3, .steps = 2});
    check(world, "CosmoFlow with batch norm",
          CosmoFlowRun{.options = {.batch_norm = true, .filters = 2}, .batch = 4, .steps = 2});
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
