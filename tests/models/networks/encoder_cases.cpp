#include "tests/models/networks/encoder_cases.h"

#include <algorithm>
#include <cmath>

#include "models/losses/contrastive/join_views.h"
#include "models/losses/contrastive/pairs.h"
#include "models/losses/contrastive/statistics.h"
#include "models/networks/conv4.h"
#include "models/networks/encoder3d.h"
#include "models/networks/projection.h"
#include "models/networks/resnet.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"

namespace mpigrad::testing {
namespace {

using namespace mpigrad::contrastive;

// An encoder of any kind with its head; both views in one pass.
template <class Encoder, class Options>
struct OneTower : nn::Module {
  OneTower(const Options& options, const ProjectionOptions& head)
      : encoder(*this, "encoder", options), head(*this, "head", head) {}
  Tensor operator()(const Tensor& x) override { return head(encoder(x)); }
  Encoder encoder;
  ProjectionHead head;
};

struct TwoTowers : nn::Module {
  Tensor operator()(const Tensor& x) override {
    scale.value();
    return left(x), right(x);
  }
  Tensor left(const Tensor& x) { return left_head(images(x)); }
  Tensor right(const Tensor& x) { return right_head(others(x)); }
  ResNet images{*this, "images", {.depth = 10, .width = 4, .small_images = true}};
  Conv4 others{*this, "others", {.width = 6, .blocks = 2}};
  ProjectionHead left_head{*this, "left", {.layers = 1, .out = 5, .bias = true}};
  ProjectionHead right_head{*this, "right", {.layers = 3, .hidden = 7, .out = 5}};
  LearnedNumber scale{*this, "scale", 0.8};
};

Tensor view_of(const EncoderCase& encoder, std::uint64_t number, const LayoutPtr& layout, DType dtype) {
  return constant(random_normal(encoder.input, {.key = 11, .stream = number}, 0, 1, dtype, layout));
}

EncoderResult result_of(nn::Module& net, const Tensor& share, Tape& tape, const GridPtr& grid) {
  EncoderResult result;
  result.loss = total(share, grid->world());
  const auto gradients = tape.gradient(share);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    result.names.push_back(net.parameters()[i].name), result.gradients.push_back(gradients[i]);
  for (const auto& [name, value] : net.buffers()) result.running.push_back(value);
  return result;
}

template <class Net>
EncoderResult run_pair(Net& net, const EncoderCase& encoder, const GridPtr& grid, DType dtype, bool joined) {
  const auto layout = activation_layout(grid, encoder.input);
  net.build(layout, {.seed = 3, .dtype = dtype});
  const Tensors views{view_of(encoder, 1, layout, dtype), view_of(encoder, 2, layout, dtype)};
  Tape tape(net);
  const auto z = joined ? split_views(net(join_views(views))) : Tensors{net(views[0]), net(views[1])};
  return result_of(net, nt_xent(z[0], z[1], sample_group(z[0]), {.temperature = 0.5}), tape, grid);
}

EncoderResult run_clip(const EncoderCase& encoder, const GridPtr& grid, DType dtype) {
  TwoTowers net;
  const auto layout = activation_layout(grid, encoder.input);
  net.build(layout, {.seed = 4, .dtype = dtype});
  const auto x = view_of(encoder, 1, layout, dtype), y = view_of(encoder, 2, layout, dtype);
  Tape tape(net);
  const auto a = net.left(x), b = net.right(y);
  return result_of(net, clip(a, b, net.scale.value(), sample_group(a)), tape, grid);
}

}  // namespace

const std::vector<EncoderCase>& encoder_cases() {
  static const std::vector<EncoderCase> list{{"resnet, bottlenecks", {6, 1, 33, 26, 3}},
                                             {"resnet, views joined", {6, 1, 19, 16, 1}},
                                             {"conv4", {6, 1, 14, 13, 1}},
                                             {"encoder3d", {5, 9, 8, 11, 2}},
                                             {"clip", {6, 1, 9, 10, 2}}};
  return list;
}

EncoderResult run_encoder(const EncoderCase& encoder, const GridPtr& grid, DType dtype) {
  const ProjectionOptions head{.layers = 2, .hidden = 8, .out = 5, .final_norm = true};
  if (encoder.name == "clip") return run_clip(encoder, grid, dtype);
  if (encoder.name == "conv4") {
    OneTower<Conv4, Conv4Options> net({.width = 6, .blocks = 3, .growth = 1.5}, head);
    return run_pair(net, encoder, grid, dtype, true);
  }
  if (encoder.name == "encoder3d") {
    OneTower<Encoder3d, Encoder3dOptions> net({.width = 4, .blocks = {1, 1, 1}}, head);
    return run_pair(net, encoder, grid, dtype, false);
  }
  const bool joined = encoder.name.find("joined") != std::string::npos;
  OneTower<ResNet, ResNetOptions> net({.depth = joined ? 10 : 50, .width = joined ? 6 : 2, .small_images = joined}, head);
  return run_pair(net, encoder, grid, dtype, joined);
}

EncoderErrors compare(const EncoderResult& found, const EncoderResult& expected) {
  require(found.names == expected.names && found.running.size() == expected.running.size(), "[test] other parameters");
  EncoderErrors result;
  double squares = 0, norm = 0;
  // NaN counts as larger than any number.
  const auto grow = [](double& most, double value) { most = value <= most ? most : value; };
  for (std::size_t i = 0; i < found.gradients.size(); ++i) {
    const auto a = found.gradients[i].to_vector(), b = expected.gradients[i].to_vector();
    require(a.size() == b.size(), "[test] {} has another size", found.names[i]);
    double of_one = 0;
    for (std::size_t j = 0; j < a.size(); ++j) of_one += (a[j] - b[j]) * (a[j] - b[j]), norm += b[j] * b[j];
    squares += of_one;
    grow(result.worst, std::sqrt(of_one));
  }
  for (std::size_t i = 0; i < found.running.size(); ++i) {
    const auto a = found.running[i].to_vector(), b = expected.running[i].to_vector();
    for (std::size_t j = 0; j < a.size(); ++j) grow(result.running, std::abs(a[j] - b[j]) / (1 + std::abs(b[j])));
  }
  result.gradient = std::sqrt(squares / norm);
  result.worst /= std::sqrt(norm);
  result.loss = std::abs(found.loss - expected.loss) / std::abs(expected.loss);
  return result;
}

}  // namespace mpigrad::testing
