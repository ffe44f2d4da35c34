#include "examples/studies/plan/networks.h"

#include "examples/studies/plan/layer_file.h"
#include "examples/studies/plan/layer_network.h"
#include "framework/base/joined.h"
#include "models/losses/segmentation.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/resnet.h"
#include "models/networks/unet3d.h"
#include "models/trainer/tool/together.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"

namespace mpigrad::plan {
namespace {

// Thirteen convolutions of 3x3 in five stages, and three products (Simonyan and Zisserman 2015, configuration D): 138,357,544
// parameters with three channels of 224x224.
struct Vgg16 : nn::Sequential {
  Vgg16() {
    const std::vector<std::vector<std::int64_t>> stages{{64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}};
    for (std::size_t s = 0; s < stages.size(); ++s) {
      for (std::size_t c = 0; c < stages[s].size(); ++c) {
        const auto name = fmt::format("conv{}_{}", s + 1, c + 1);
        add<nn::Conv3d>(name, {.out = stages[s][c], .kernel = {1, 3, 3}, .padding = {0, 1, 1}});
        add<nn::Activate>("relu" + name.substr(4), Activation::relu);
      }
      add<nn::MaxPool3d>(fmt::format("pool{}", s + 1), {.kernel = {1, 2, 2}, .stride = {1, 2, 2}});
    }
    add<nn::Flatten>("flatten");
    for (const int i : {6, 7}) {
      add<nn::Linear>(fmt::format("fc{}", i), {.out = 4096, .activation = Activation::relu});
      add<nn::Dropout>(fmt::format("drop{}", i), {.keep = 0.5});
    }
    add<nn::Linear>("fc8", {.out = 1000, .whole = true});
  }
};

// The network of two groups (Krizhevsky, Sutskever and Hinton 2012), without its response normalisation, which has no weights:
// 60,965,224 parameters, of which 60,954,656 are not biases, with three channels of 227x227.
struct AlexNet : nn::Sequential {
  AlexNet() {
    const nn::MaxPool3d::Attributes pool{.kernel = {1, 3, 3}, .stride = {1, 2, 2}};
    conv("1", {.out = 96, .kernel = {1, 11, 11}, .stride = {1, 4, 4}});
    add<nn::MaxPool3d>("pool1", pool);
    conv("2", {.out = 256, .kernel = {1, 5, 5}, .padding = {0, 2, 2}, .groups = 2});
    add<nn::MaxPool3d>("pool2", pool);
    conv("3", {.out = 384, .kernel = {1, 3, 3}, .padding = {0, 1, 1}});
    conv("4", {.out = 384, .kernel = {1, 3, 3}, .padding = {0, 1, 1}, .groups = 2});
    conv("5", {.out = 256, .kernel = {1, 3, 3}, .padding = {0, 1, 1}, .groups = 2});
    add<nn::MaxPool3d>("pool5", pool);
    add<nn::Flatten>("flatten");
    for (const int i : {6, 7}) {
      add<nn::Linear>(fmt::format("fc{}", i), {.out = 4096, .activation = Activation::relu});
      add<nn::Dropout>(fmt::format("drop{}", i), {.keep = 0.5});
    }
    add<nn::Linear>("fc8", {.out = 1000, .whole = true});
  }

 private:
  void conv(const std::string& number, const nn::Conv3dAttributes& attributes) {
    add<nn::Conv3d>("conv" + number, attributes);
    add<nn::Activate>("relu" + number, Activation::relu);
  }
};

// Labels where the scores are: in a pipeline only the last stage has their elements.
Tensor labels_for(const Tensor& scores, const Shape& shape) {
  return constant(zeros_like(Tensor::where(scores, {shape, DType::int32})));
}

// The objective of trainers: the network's output compared with known targets.
Tensor error_of_values(nn::Module& net, const Tensor& x) {
  const auto y = cast(net(x), net.dtype());
  return mse(y, constant(zeros_like(y).with_layout(y.layout())));
}
Tensor error_of_classes(nn::Module& net, const Tensor& x) {
  const auto scores = net(x);
  const auto labels = labels_for(scores, {scores.dim(0)});
  if (!scores.layout()) return cross_entropy(scores, labels);
  const auto grid = std::dynamic_pointer_cast<const Grid>(scores.layout()->grid);
  return cross_entropy(scores, labels.with_layout(split_layout(grid, {scores.layout()->global[0]}, {0})));
}
Tensor error_of_voxels(nn::Module& net, const Tensor& x) {
  const auto scores = net(x);
  const auto cells = [](const Shape& s) { return Shape{s[0], s[1], s[2], s[3]}; };
  const auto labels = labels_for(scores, cells(scores.shape()));
  if (!scores.layout()) return segmentation::dice_cross_entropy_loss(scores, labels);
  const auto grid = std::dynamic_pointer_cast<const Grid>(scores.layout()->grid);
  return segmentation::dice_cross_entropy_loss(
      scores, labels.with_layout(split_layout(grid, cells(scores.layout()->global), {0, 1, 2, 3})));
}

Network cosmoflow(CosmoFlowVariant variant, std::int64_t extent, const char* sentence) {
  return {.make = [variant] { return std::make_unique<CosmoFlow>(CosmoFlowOptions{.variant = variant}); },
          .input = {1, extent, extent, extent, 4},
          .sentence = sentence,
          .objective = error_of_values,
          .trainer = variant == CosmoFlowVariant::mlperf ? "cosmoflow train --variant mlperf" : "cosmoflow train"};
}
Network unet3d(UNet3dVariant variant, std::int64_t extent, const char* sentence) {
  const auto net = [variant](bool recompute) {
    return std::make_unique<UNet3d>(UNet3dOptions{.variant = variant, .recompute = recompute});
  };
  return {.make = [net] { return net(false); },
          .input = {1, extent, extent, extent, 1},
          .sentence = sentence,
          .recomputing = [net] { return net(true); },
          .objective = error_of_voxels,
          .trainer = variant == UNet3dVariant::lbann ? "unet3d train --set network.variant=lbann" : "unet3d train",
          .extents_key = "window"};
}
// Networks that a user's own program trains.
Network images(std::function<std::unique_ptr<nn::Module>()> make, std::int64_t extent, const char* sentence) {
  return {.make = std::move(make), .input = {1, 1, extent, extent, 3}, .sentence = sentence, .objective = error_of_classes};
}

std::map<std::string, Network>& registry() {
  static std::map<std::string, Network> all{
      {"cosmoflow", cosmoflow(CosmoFlowVariant::hybrid, 512, "CosmoFlow of seven convolutions (Oyama et al. 2020), 512^3")},
      {"cosmoflow-mlperf", cosmoflow(CosmoFlowVariant::mlperf, 128, "CosmoFlow of MLPerf HPC, 128^3")},
      {"unet3d", unet3d(UNet3dVariant::mlperf, 128, "3D U-Net of MLPerf Training, 128^3, three classes")},
      {"unet3d-lbann", unet3d(UNet3dVariant::lbann, 256, "3D U-Net of Oyama et al. 2020, 256^3, three classes")},
      {"resnet50", images([] { return std::make_unique<ResNet>(ResNetOptions{.depth = 50, .classes = 1000}); }, 224,
                          "ResNet-50 (v1.5), images of 224x224, 1000 classes")},
      {"vgg16", images([] { return std::make_unique<Vgg16>(); }, 224, "VGG-16, images of 224x224, 1000 classes")},
      {"alexnet",
       images([] { return std::make_unique<AlexNet>(); }, 227, "AlexNet of two groups (2012), images of 227x227, 1000 classes")}};
  return all;
}

void refuse_size_of_file(const std::string& name, std::int64_t size) {
  if (size > 0 && name.ends_with(".toml"))
    throw tool::UsageError("--size is for networks by name: a layer file says how large its layers are");
}

// The network of a layer file, under the file's name.
const Network& network_of_file(const std::string& file) {
  auto& all = registry();
  if (const auto found = all.find(file); found != all.end()) return found->second;
  const auto layers = read_layer_file(file);
  (void)make_network(file, layers);
  return all
      .emplace(file, Network{.make = [file, layers] { return make_network(file, layers); },
                             .input = input_of(layers),
                             .sentence = "layers of a file"})
      .first->second;
}

}  // namespace

const std::map<std::string, Network>& networks() { return registry(); }

void register_network(const std::string& name, Network network) {
  require(!name.empty() && !name.ends_with(".toml"), "[plan] a network needs a name that does not end with .toml, got '{}'",
          name);
  require(network.make != nullptr, "[plan] network {} needs a function that makes it", name);
  require(network.input.rank() == 5 && network.input[0] == 1, "[plan] the input of network {} is [1, D, H, W, C], got {}", name,
          network.input);
  registry().insert_or_assign(name, std::move(network));
}

Shape input_of(const Network& network, std::int64_t size) {
  auto input = network.input;
  for (int d = 1; d <= 3 && size > 0; ++d)
    if (input[d] > 1) input[d] = size;
  return input;
}

const Network& network_named(const std::string& name) {
  if (name.ends_with(".toml")) return network_of_file(name);
  const auto found = registry().find(name);
  if (found == registry().end()) {
    std::vector<std::string> known;
    for (const auto& [each, network] : registry()) known.push_back(each);
    throw tool::UsageError(fmt::format("there is no network '{}': {}", name, joined(known, ", ")));
  }
  return found->second;
}

planner::Subject subject_named(const std::string& name, std::int64_t size) {
  refuse_size_of_file(name, size);
  const auto& network = network_named(name);
  return {
      .make = [&network](bool recompute) { return recompute && network.recomputing ? network.recomputing() : network.make(); },
      .recomputes = network.recomputing != nullptr,
      .input = input_of(network, size),
      .objective = network.objective};
}

planner::Machine machine_of(const std::string& file) {
  try {
    return planner::read_machine(file);
  } catch (const Error& error) {
    throw tool::UsageError(error.what());
  }
}

std::vector<planner::Layer> layers_named(const std::string& name, std::int64_t size) {
  refuse_size_of_file(name, size);
  if (name.ends_with(".toml")) return read_layer_file(name);
  const auto& network = network_named(name);
  try {
    const auto net = network.make();
    return planner::read_layers(*net, input_of(network, size));
  } catch (const Error& error) {
    throw tool::UsageError(size > 0 ? fmt::format("{} with --size {}: {}", name, size, error.what())
                                    : fmt::format("{}: {}", name, error.what()));
  }
}

}  // namespace mpigrad::plan
