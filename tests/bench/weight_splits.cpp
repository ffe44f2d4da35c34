// Time and memory of training steps whose layers are split along samples, space, filters or channels, or whose weights are stored
// in parts, on all available ranks, compared with splitting only samples: for layers with small volumes and many weights.
//
//   build/tests/weight_splits; mpiexec -n 2 build/tests/weight_splits

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "comm/distributed/redistribute.h"
#include "comm/launch.h"
#include "framework/optim/optimizer.h"
#include "models/networks/residual.h"
#include "models/nn/sequential.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"

namespace mpigrad::bench {
namespace {

struct Options {
  std::int64_t batch = 8;
  int repeats = 7;
};

// The last three convolutions of the hybrid variant at 512^3: 16^3 x 128 to 2^3 x 256.
struct LastConvs : nn::Sequential {
  LastConvs() {
    const auto leaky = Activation::leaky_relu(0.01);
    const PoolAttributes pool{.kernel = 3, .stride = 2, .padding = 1};
    for (const int i : {5, 6, 7}) {
      add<nn::Conv3d>(fmt::format("conv{}", i), {.out = 256, .kernel = 3, .padding = 1, .bias = false, .activation = leaky});
      add<nn::AvgPool3d>(fmt::format("pool{}", i), pool);
    }
    add<nn::GlobalAvgPool>("mean");
    add<nn::Linear>("linear", {.out = 4, .whole = true});
  }
};
// The linear layers after them.
struct Linears : nn::Sequential {
  Linears() {
    const auto leaky = Activation::leaky_relu(0.01);
    add<nn::Flatten>("flatten");
    add<nn::Linear>("linear1", {.out = 2048, .activation = leaky});
    add<nn::Linear>("linear2", {.out = 2048, .activation = leaky});
    add<nn::Linear>("linear3", {.out = 4, .whole = true});
  }
};
// ResNet-50's last stage: 14^2 x 1024 to 7^2 x 2048.
struct LastStage : nn::Module {
  nn::ResidualBlock first{*this, "block1", attributes()}, second{*this, "block2", attributes()},
      third{*this, "block3", attributes()};
  nn::Linear classifier{*this, "classifier", {.out = 1000, .whole = true}};
  static nn::ResidualAttributes attributes() { return {.width = 512, .bottleneck = true, .kernel = {1, 3, 3}}; }
  Tensor operator()(const Tensor& x) override { return classifier(global_avg_pool(third(second(first(x, {1, 2, 2}), 1), 1))); }
};

struct Scheme {
  std::string name;
  GridExtents grid;
  nn::LayerSplit split = ChannelSplit::filters;
  bool sharded = false;
};

struct Measured {
  double seconds = 0, peak = 0, kept = 0;  // bytes: peak of all tensors; weights and the optimizer's state
};

Measured measure(const Communicator& world, nn::Module& net, const Shape& input, const Scheme& scheme, const Options& o) {
  const auto grid = make_grid(world, scheme.grid);
  const auto layout = input_layout(grid, input);
  net.build(layout, {.seed = 1, .split = scheme.split, .sharded_weights = scheme.sharded});
  Adam adam(net, {.learning_rate = 1e-5});
  const auto x = constant(random_normal(input, {1, 2}, 0, 1, DType::float32, layout));
  const auto kept = memory_statistics(DeviceKind::cpu).current_bytes - x.bytes();
  const auto step = [&] {
    Tape tape(net);
    const auto y = net(x);
    adam.step(tape.gradient(mse(y, constant(y * 0))));
  };
  step();
  reset_peak_memory(DeviceKind::cpu);
  std::vector<double> seconds;
  for (int i = 0; i < o.repeats; ++i) {
    world.transport().barrier();
    const auto start = std::chrono::steady_clock::now();
    step();
    double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    world.transport().allreduce(&mine, &mine, 1, DType::float64, CombineOp::max);
    seconds.push_back(mine);
  }
  std::sort(seconds.begin(), seconds.end());
  double bytes[] = {static_cast<double>(memory_statistics(DeviceKind::cpu).peak_bytes), static_cast<double>(kept)};
  world.transport().allreduce(bytes, bytes, 2, DType::float64, CombineOp::max);
  return {seconds[seconds.size() / 2], bytes[0], bytes[1]};
}

template <class Net>
void compare(const Communicator& world, const char* what, Shape input, const Options& o) {
  const int p = world.size();
  const bool images = input[1] == 1;
  input[0] = o.batch;
  std::vector<Scheme> schemes{{"samples", {.sample = p}}};
  if (p > 1) {
    if (input[2] > 1) schemes.push_back({"space", images ? GridExtents{.height = p} : GridExtents{.depth = p}});
    schemes.push_back({"filters", {.channel = p}});
    schemes.push_back({"channels", {.channel = p}, {ChannelSplit::channels, "channel", true}});
    schemes.push_back({"samples, weights in parts", {.sample = p}, ChannelSplit::filters, true});
  }
  Measured samples;
  for (const auto& scheme : schemes) {
    Net net;
    const auto found = measure(world, net, input, scheme, o);
    if (&scheme == schemes.data()) samples = found;
    constexpr double mebi = 1.0 / (1 << 20);
    if (world.rank() == 0)
      fmt::print("{:<34} {:<26} {:>9.2f} {:>7.2f} {:>9.1f} {:>7.2f} {:>9.1f} {:>7.2f}\n", what, scheme.name, 1e3 * found.seconds,
                 found.seconds / samples.seconds, mebi * found.peak, found.peak / samples.peak, mebi * found.kept,
                 found.kept / samples.kept);
  }
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  const Communicator world(transport);
  Options o;
  CLI::App app("Training steps (Adam) of layers with many weights, for every split, compared with splitting only samples");
  app.add_option("--batch", o.batch, "samples")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--repeats", o.repeats, "counted steps")->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (world.rank() == 0)
    fmt::print(
        "{} ranks, batch {}; of each rank the largest; ratios to samples alone\n{:<34} {:<26} {:>9} {:>7} {:>9} {:>7} {:>9} "
        "{:>7}\n",
        world.size(), o.batch, "", "split", "ms", "", "peak MiB", "", "kept MiB", "");
  compare<LastConvs>(world, "CosmoFlow's last 3 convolutions", {0, 16, 16, 16, 128}, o);
  compare<Linears>(world, "2048-wide linear layers", {0, 2, 2, 2, 256}, o);
  compare<LastStage>(world, "ResNet-50's last stage", {0, 1, 14, 14, 1024}, o);
  return 0;
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::bench::run(transport, argc, argv);
  });
}
