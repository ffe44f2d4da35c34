#pragma once
// Small networks with layers split along the grid axis `channel`, trained for a few steps on any grid: the results must equal
// those of one rank.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/distributed/distributed.h"
#include "framework/base/error.h"
#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/resnet.h"
#include "models/networks/unet3d.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"

namespace mpigrad::testing {

using NetworkMaker = std::function<std::unique_ptr<nn::Module>()>;
using OptimizerMaker = std::function<std::unique_ptr<Optimizer>(Parameters&)>;

struct SplitNetwork {
  std::string name;
  NetworkMaker make;
  Shape input, target;
};

// AlexNet's structure: strided convolutions, one of two groups, max pools, three linear layers; each layer is split in a
// different way, or all as the network is.
struct SmallAlexNet : nn::Sequential {
  explicit SmallAlexNet(bool each_its_own) {
    const auto own = [&](ChannelSplit split, bool scatter = false) {
      return each_its_own ? std::optional(nn::LayerSplit(split, "channel", scatter)) : std::nullopt;
    };
    const auto relu = Activation::leaky_relu(0.1);
    const PoolAttributes pool{.kernel = 3, .stride = 2, .padding = 1};
    add<nn::Conv3d>("conv1", {.out = 8, .kernel = 5, .stride = 2, .padding = 2, .activation = relu});
    add<nn::MaxPool3d>("pool1", pool);
    add<nn::Conv3d>("conv2", {.out = 12, .kernel = 3, .padding = 1, .groups = 2, .split = own(ChannelSplit::groups)});
    add<nn::Activate>("relu2", relu);
    add<nn::AvgPool3d>("pool2", pool);
    add<nn::Conv3d>("conv3", {.out = 7, .kernel = 3, .padding = 1, .split = own(ChannelSplit::channels, true)});
    add<nn::GroupNorm>("norm3", {.groups = 1, .activation = relu});
    add<nn::Conv3d>("conv4", {.out = 6, .kernel = 3, .padding = 1, .activation = relu, .split = own(ChannelSplit::channels)});
    add<nn::Flatten>("flatten");
    add<nn::Linear>("linear1", {.out = 11, .activation = relu});
    add<nn::Dropout>("dropout", {.keep = 0.8});
    add<nn::Linear>("linear2", {.out = 10, .activation = relu, .split = own(ChannelSplit::channels, true)});
    add<nn::Linear>("linear3", {.out = 4, .whole = true});
  }
};

inline std::vector<SplitNetwork> split_networks() {
  const auto cosmoflow = [](bool norm) {
    return [=] { return std::make_unique<CosmoFlow>(CosmoFlowOptions{.batch_norm = norm, .filters = 2}); };
  };
  const auto unet = [](UNet3dVariant variant) {
    return [=] { return std::make_unique<UNet3d>(UNet3dOptions{.variant = variant, .filters = {4, 5, 6, 7}, .classes = 3}); };
  };
  return {
      {"CosmoFlow", cosmoflow(false), {2, 16, 16, 16, 2}, {2, 4}},
      {"CosmoFlow with batch norm", cosmoflow(true), {2, 16, 16, 16, 2}, {2, 4}},
      {"AlexNet", [] { return std::make_unique<SmallAlexNet>(false); }, {2, 20, 12, 12, 3}, {2, 4}},
      {"AlexNet, each layer its own way", [] { return std::make_unique<SmallAlexNet>(true); }, {2, 20, 12, 12, 3}, {2, 4}},
      {"ResNet",
       [] { return std::make_unique<ResNet>(ResNetOptions{.depth = 10, .classes = 5, .width = 4, .small_images = true}); },
       {4, 1, 12, 12, 3},
       {4, 5}},
      {"ResNet of bottlenecks",
       [] { return std::make_unique<ResNet>(ResNetOptions{.depth = 50, .width = 2, .small_images = true}); },
       {4, 1, 16, 16, 3},
       {4, 64}},
      // Small differences do not grow from step to step, as they would in fifty layers of few numbers.
      {"ResNet-50 that begins as its shortcuts",
       [] { return std::make_unique<ResNet>(ResNetOptions{.depth = 50, .width = 2, .small_images = true, .zero_start = true}); },
       {4, 1, 16, 16, 3},
       {4, 64}},
      {"U-Net of maxima and batch norm", unet(UNet3dVariant::lbann), {2, 12, 8, 6, 1}, {2, 12, 8, 6, 3}},
      {"U-Net of strides and instance norm", unet(UNet3dVariant::mlperf), {2, 12, 8, 6, 1}, {2, 12, 8, 6, 3}}};
}

// The whole state after a training, by name.
using Trained = std::map<std::string, std::vector<double>>;

inline std::vector<double> whole_values(const Tensor& x) {
  Untaped scope;
  return (x.layout() ? gather_all(constant(x)) : x).to_vector();
}

inline Trained everything_of(nn::Module& net, const Optimizer* optimizer = nullptr) {
  Trained result;
  auto& parameters = net.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) result[parameters[i].name] = whole_values(parameters[i].value);
  for (const auto& [name, value] : net.buffers()) result[name] = whole_values(value);
  if (optimizer)
    for (const auto& [name, value] : optimizer->state()) result["state of " + name] = whole_values(value);
  return result;
}

// The network built for a grid, or for one rank without a grid, and its data, the same on every grid.
struct SplitTraining {
  SplitTraining(const SplitNetwork& network, const GridPtr& on, const nn::LayerSplit& split = ChannelSplit::filters)
      : SplitTraining(network, on, nn::BuildOptions{.split = split}) {}
  SplitTraining(const SplitNetwork& network, const GridPtr& on, nn::BuildOptions options) : net(network.make()) {
    options.seed = 3, options.dtype = DType::float64;
    if (!on) {
      net->build(network.input, options);
    } else {
      of_x = input_layout(on, network.input);
      of_y = split_layout(on, network.target, network.target.rank() == 5 ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0});
      net->build(of_x, options);
    }
    x_shape = network.input, y_shape = network.target;
  }

  Tensor data(const Shape& shape, int step, std::uint64_t which, const LayoutPtr& layout) const {
    return constant(random_uniform(shape, Philox{.key = static_cast<std::uint64_t>(step % 2), .stream = which}, -1, 1,
                                   DType::float64, layout));
  }
  void train(Optimizer& optimizer, int first, int last, double max_norm = 0) {
    for (int step = first; step < last; ++step) {
      net->set_step(step);
      Tape tape(*net);
      const auto loss = mse((*net)(data(x_shape, step, 1, of_x)), data(y_shape, step, 2, of_y));
      optimizer.step(tape.gradient(loss), {.max_norm = max_norm});
    }
  }

  std::unique_ptr<nn::Module> net;
  Shape x_shape, y_shape;
  LayoutPtr of_x, of_y;
};

inline void require_trained(const std::string& what, const Trained& found, const Trained& expected, double tolerance = 1e-10) {
  require(found.size() == expected.size(), "[test] {}: {} tensors for {}", what, found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const auto& mine = found.at(name);
    require(mine.size() == values.size(), "[test] {}: {} has {} elements for {}", what, name, mine.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      require(std::abs(mine[i] - values[i]) <= tolerance * std::max(1.0, std::abs(values[i])),
              "[test] {}: element {} of {} is {:.15g}, on one rank {:.15g}", what, i, name, mine[i], values[i]);
  }
}

}  // namespace mpigrad::testing
