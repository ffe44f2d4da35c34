// Exported networks, run by the operators that pass ONNX's own tests (tests/ops/conformance), against the output of the network.

#include <doctest/doctest.h>
#include <onnx.pb.h>

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "comm/distributed/distributed.h"
#include "comm/distributed/upsample.h"
#include "models/export/onnx.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/resnet.h"
#include "models/networks/unet3d.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/ops/conformance/onnx_operators.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

mpigrad_onnx::Model read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  mpigrad_onnx::Model model;
  REQUIRE(model.ParseFromString(text.str()));
  return model;
}

Tensor value_of(const mpigrad_onnx::TensorData& data) {
  const std::vector<std::int64_t> dims(data.dims().begin(), data.dims().end());
  const auto type = data.data_type() == 1 ? DType::float32 : data.data_type() == 11 ? DType::float64 : DType::int64;
  Tensor value = zeros(Shape(dims), type);
  REQUIRE(static_cast<std::int64_t>(data.raw_data().size()) == value.bytes());
  std::memcpy(value.raw(), data.raw_data().data(), data.raw_data().size());
  return value;
}

// x and the result in ONNX's order of dimensions.
Tensor run(const mpigrad_onnx::Model& model, const Tensor& x) {
  std::map<std::string, Tensor> values{{"x", x}};
  for (const auto& data : model.graph().initializer()) values[data.name()] = value_of(data);
  for (const auto& node : model.graph().node()) {
    OnnxNode made{.op = node.op_type(),
                  .inputs = {node.input().begin(), node.input().end()},
                  .outputs = {node.output(0)},
                  .attributes = {}};
    for (const auto& a : node.attribute()) {
      auto& attribute = made.attributes[a.name()];
      if (a.type() == 2) attribute = {"int", {std::to_string(a.i())}};
      else if (a.type() == 1) attribute = {"float", {fmt::format("{}", a.f())}};
      else
        for (const auto i : a.ints()) attribute.type = "ints", attribute.values.push_back(std::to_string(i));
    }
    std::vector<Tensor> inputs;
    for (const auto& name : node.input()) {
      CAPTURE(name);
      REQUIRE(values.count(name) == 1);
      inputs.push_back(values.at(name));
    }
    if (node.op_type() == "Identity") {
      values[node.output(0)] = inputs[0];
      continue;
    }
    CAPTURE(node.op_type());
    values[node.output(0)] = onnx_operator(node.op_type())(made, inputs).at(0);
  }
  return values.at("y");
}

const std::vector<int> to_onnx{0, 4, 1, 2, 3}, from_onnx{0, 2, 3, 4, 1};

// The file written for one sample must give the network's output for two other samples.
void check(nn::Module& net, const Shape& one, double tolerance) {
  const Folder folder;
  Untaped scope;
  auto two = one;
  two[0] = 2;
  net.train();
  for (std::uint64_t i = 0; i < 3; ++i)
    (void)net(random_normal(two, {.key = 90 + i}, 0.3, 1.5, net.dtype()));  // so that norms have running statistics
  export_onnx(folder / "net.onnx", net, one);
  CHECK(net.training());
  CHECK(error_text([&] { export_onnx(folder / "net.onnx", net, one); }).find("exists already") != std::string::npos);
  const auto model = read(folder / "net.onnx");
  CHECK(model.opset_import(0).version() == 17);
  CHECK(model.graph().input(0).type().tensor_type().shape().dim(0).dim_param() == "N");
  const auto x = random_normal(two, {.key = 5}, 0, 1, net.dtype());
  nn::EvaluationMode mode(net);
  const auto expected = net(x);
  const auto y = run(model, x.rank() == 5 ? permute(x, to_onnx) : x);
  const auto found = y.rank() == 5 ? permute(y, from_onnx) : y;
  REQUIRE(found.shape() == expected.shape());
  CHECK(max(abs(found - expected)).item() <= tolerance * (1 + max(abs(expected)).item()));
}

// Many of the features that users' networks have.
class Mixed : public nn::Module {
 public:
  Tensor operator()(const Tensor& input) override {
    const auto half = norm_(conv_(input * 0.5 + 0.25));
    auto x = upsample(half, {6, 8, 4}, Interpolation::linear);
    x = concatenate({x, sigmoid(x), pad(slice(input, {0, 1, 0, 0, 0}, input.shape()), {0, 1, 0, 0, 0}, {0, 0, 0, 0, 0})}, 4);
    x = max_pool(group_(x), {.kernel = 3, .stride = 2, .padding = 1});
    x = up_(x) / 3.0 - square(tanh(half)) * exp(-abs(half));
    const auto rows = mean(x, {1, 2, 3}) + max(x, {1, 2, 3});
    return softmax(linear_(reshape(2.0 / (1.5 + sigmoid(rows)), {rows.dim(0), rows.dim(1)})));
  }

 private:
  nn::Conv3d conv_{
      *this, "conv", {.out = 4, .kernel = {3, 2, 1}, .stride = 2, .padding = {1, 0, 0}, .activation = Activation::relu}};
  nn::BatchNorm norm_{*this, "norm", {.activation = Activation::leaky_relu(0.2)}};
  nn::GroupNorm group_{*this, "group", {.groups = 2}};
  nn::ConvTranspose3d up_{*this, "up", {.out = 4, .kernel = 3, .stride = 1, .padding = 1}};
  nn::Linear linear_{*this, "linear", {.out = 5}};
};

}  // namespace

TEST_CASE("onnx: CosmoFlow") {
  for (const bool batch_norm : {false, true}) {
    CosmoFlow hybrid({.batch_norm = batch_norm, .filters = 2});
    hybrid.build(Shape{1, 32, 32, 32, 4}, {.seed = 3, .dtype = DType::float64});
    check(hybrid, {1, 32, 32, 32, 4}, 1e-10);
  }
  CosmoFlow mlperf({.variant = CosmoFlowVariant::mlperf, .filters = 8});
  mlperf.build(Shape{1, 32, 32, 32, 4}, {.seed = 3});
  check(mlperf, {1, 32, 32, 32, 4}, 1e-5);
}

TEST_CASE("onnx: 3D U-Nets") {
  for (const auto variant : {UNet3dVariant::mlperf, UNet3dVariant::lbann}) {
    UNet3dOptions options;
    options.variant = variant;
    options.classes = 3;
    options.filters =
        variant == UNet3dVariant::mlperf ? std::vector<std::int64_t>{4, 6, 8, 8, 10, 10} : std::vector<std::int64_t>{4, 6, 8, 8};
    UNet3d net(options);
    const Shape one = variant == UNet3dVariant::mlperf ? Shape{1, 32, 32, 64, 1} : Shape{1, 16, 24, 16, 1};
    net.build(one, {.seed = 4, .dtype = DType::float64});
    check(net, one, 1e-9);
  }
}

TEST_CASE("onnx: every activation") {
  struct Net : nn::Module {
    explicit Net(Activation of) : activation(of) {}
    Tensor operator()(const Tensor& x) override { return linear(flatten(activate(conv(x), activation)), activation); }
    Activation activation;
    nn::Conv3d conv{*this, "conv", {.out = 3, .kernel = 2, .activation = activation}};
    nn::Linear linear{*this, "linear", {.out = 5}};
  };
  for (const auto activation :
       {Activation::relu, Activation::leaky_relu(), Activation::elu(0.5), Activation::gelu, Activation::gelu_tanh,
        Activation::silu, Activation::sigmoid, Activation::tanh, Activation::softplus, Activation::hard_swish}) {
    CAPTURE(to_string(activation));
    Net net(activation);
    net.build(Shape{1, 4, 3, 4, 2}, {.seed = 6, .dtype = DType::float64});
    check(net, {1, 4, 3, 4, 2}, 1e-10);
  }
}

TEST_CASE("onnx: ResNet") {
  ResNet net({.classes = 7});
  net.build(Shape{1, 1, 32, 32, 3}, {.seed = 4, .dtype = DType::float64});
  check(net, {1, 1, 32, 32, 3}, 1e-9);
}

TEST_CASE("onnx: convolutions of planes and lines, norms of rows") {
  struct Planes : nn::Module {
    Tensor operator()(const Tensor& x) override { return rms(activate(norm(conv(x)), Activation::relu)); }
    nn::Conv2d conv{*this, "conv", {.out = 4, .kernel = {3, 2}, .stride = {1, 2}, .padding = {{1, 2}, PaddingMode::replicate}}};
    nn::LayerNorm norm{*this, "norm"};
    nn::RmsNorm rms{*this, "rms"};
  } planes;
  planes.build(Shape{1, 6, 8, 2}, {.seed = 5, .dtype = DType::float64});
  check(planes, {1, 6, 8, 2}, 1e-10);
  struct Lines : nn::Module {
    Tensor operator()(const Tensor& x) override { return conv(x); }
    nn::Conv1d conv{*this, "conv", {.out = 3, .kernel = 3, .padding = {1, PaddingMode::circular}}};
  } lines;
  lines.build(Shape{1, 6, 2}, {.seed = 5, .dtype = DType::float64});
  check(lines, {1, 6, 2}, 1e-10);
}

TEST_CASE("onnx: a network of one's own; what has no operator is named") {
  Mixed net;
  net.build(Shape{1, 6, 8, 4, 2}, {.seed = 5, .dtype = DType::float64});
  check(net, {1, 6, 8, 4, 2}, 1e-10);

  struct Flipped : nn::Module {
    Tensor operator()(const Tensor& x) override { return flip(conv(x), {1}); }
    nn::Conv3d conv{*this, "conv", {.out = 1}};
  } flipped;
  flipped.build(Shape{1, 4, 4, 4, 1});
  const Folder folder;
  CHECK(error_text([&] {
          export_onnx(folder / "a.onnx", flipped, {1, 4, 4, 4, 1});
        }) == "[onnx] the network uses flip, for which there is no operator here");
  CHECK_FALSE(std::filesystem::exists(folder / "a.onnx"));
  CHECK_FALSE(error_text([&] { export_onnx(folder / "none" / "a.onnx", net, {1, 6, 8, 4, 2}); }).empty());
}
