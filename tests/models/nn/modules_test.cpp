// Modules of modules, networks of several inputs, and tables of the layers of networks.

#include <doctest/doctest.h>

#include "comm/distributed/invariant.h"
#include "framework/optim/optimizer.h"
#include "framework/tensor/storage.h"
#include "models/networks/cosmoflow.h"
#include "models/nn/sequential.h"
#include "models/nn/summary.h"
#include "ops/array/creation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr auto leaky = Activation::leaky_relu(0.1);

// Every case in which layers are computed in one pass, with a user's layer in between.
struct Scale : nn::Module {
  using nn::Module::Module;
  Tensor operator()(const Tensor& x) override { return x * parameter("factor", {x.dim(-1)}, nn::constant_value(2)); }
};
struct Chain : nn::Sequential {
  Chain() {
    add<nn::Conv3d>("conv1", {.out = 4, .kernel = 3, .padding = 1});
    add<nn::Activate>("relu1", leaky);
    add<nn::AvgPool3d>("pool1", {.kernel = 2, .stride = 2});
    add<nn::Conv3d>("conv2", {.out = 4, .kernel = 3, .padding = 1, .activation = leaky});
    add<nn::MaxPool3d>("pool2", {.kernel = 2, .stride = 1});
    add<Scale>("scale");
    add<nn::Conv3d>("conv3", {.out = 2, .kernel = 1, .bias = false});
    add<nn::BatchNorm>("norm", {});
    add<nn::Activate>("relu3", leaky);
    auto& inner = add<nn::Sequential>("inner");
    inner.add<nn::ConvTranspose3d>("up", {.out = 3, .kernel = 2, .stride = 2});
    inner.add<nn::Activate>("relu", leaky);
    add<nn::GlobalAvgPool>("mean");
    add<nn::Linear>("linear", {.out = 5});
    add<nn::Activate>("last", leaky);
  }
};
// The same layers, one after the other.
struct Plain : nn::Module {
  Tensor operator()(const Tensor& x) override {
    auto y = avg_pool(leaky_relu(conv1(x), 0.1), {.kernel = 2, .stride = 2});
    y = max_pool(leaky_relu(conv2(y), 0.1), {.kernel = 2, .stride = 1});
    y = leaky_relu(norm(conv3(scale(y))), 0.1);
    y = leaky_relu(up(y), 0.1);
    return leaky_relu(linear(global_avg_pool(y)), 0.1);
  }
  nn::Conv3d conv1{*this, "conv1", {.out = 4, .kernel = 3, .padding = 1}},
      conv2{*this, "conv2", {.out = 4, .kernel = 3, .padding = 1}};
  Scale scale{*this, "scale"};
  nn::Conv3d conv3{*this, "conv3", {.out = 2, .kernel = 1, .bias = false}};
  nn::BatchNorm norm{*this, "norm"};
  nn::Module inner{*this, "inner"};
  nn::ConvTranspose3d up{inner, "up", {.out = 3, .kernel = 2, .stride = 2}};
  nn::Linear linear{*this, "linear", {.out = 5}};
};

struct Two : nn::Module {
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    require(in.size() == 2, "[two] takes a volume and a vector, not {} inputs", in.size());
    const auto features = global_avg_pool(conv(in[0]));
    return {linear(features) + in[1], features};
  }
  nn::Conv3d conv{*this, "conv", {.out = 3, .kernel = 3, .padding = 1}};
  nn::Linear linear{*this, "linear", {.out = 2}};
};

}  // namespace

TEST_CASE("modules: a Sequential computes what its layers do one after the other, on every grid, and keeps less") {
  const Shape shape{2, 8, 6, 4, 2};
  const auto results = [&](nn::Module& net, const Tensor& x) {
    Tensors in{x};
    for (const auto& w : net.parameters().tensors()) in.push_back(w);
    Tape tape;
    const auto y = net(x);
    auto found = tape.gradient(mean(square(y)), in);
    found.push_back(y);
    return found;
  };
  for (const int size : {1, 2, 3})
    check_on_ranks(size, "sequential", [&](const Communicator& comm) {
      const auto layout = activation_layout(make_grid(comm, {.depth = comm.size()}), shape);
      Chain chain;
      Plain plain;
      const nn::BuildOptions options{.seed = 7, .dtype = DType::float64};
      chain.build(layout, options), plain.build(layout, options);
      require(chain.parameters().size() == plain.parameters().size() && chain.size() == 13, "[test] {} parameters",
              chain.parameters().size());
      const auto x = global_tensor(shape, 3, layout);
      const auto a = results(chain, x), b = results(plain, x);
      for (std::size_t i = 0; i < a.size(); ++i)
        require_close(fmt::format("{}", i), a[i].without_layout(), b[i].without_layout());
    });
  // Bytes that a tape keeps of the large tensors: signs instead of activations.
  const auto kept = [&](nn::Module& net, const Shape& large) {
    const auto x = global_tensor(large, 3);
    net.build(large, {.dtype = DType::float64});
    Tape tape(net);
    const auto before = memory_statistics(DeviceKind::cpu).current_bytes;
    const auto y = net(x);
    return memory_statistics(DeviceKind::cpu).current_bytes - before;
  };
  Chain chain;
  Plain plain;
  const Shape large{1, 16, 16, 16, 2};
  CHECK(kept(chain, large) < kept(plain, large) / 2);
}

TEST_CASE("modules: layers of a Sequential have names of their own, and what it is given must fit") {
  struct Twice : nn::Sequential {
    Twice() { add<nn::Linear>("fc", {.out = 2}), add<nn::Linear>("fc", {.out = 2}); }
  };
  CHECK(error_text([] { Twice net; }).find("two layers named fc") != std::string::npos);
  nn::Sequential empty;
  const auto x = global_tensor({2, 3}, 1);
  empty.build(x.shape());
  CHECK(empty(x).id() == x.id());
  // A plain tensor has no layout.
  nn::Sequential serial;
  CHECK(has(error_text([&] { serial.build(x.layout()); }), "without a process grid call build(shape)"));
  CHECK(has(error_text([&] { serial.build(std::vector{x.layout()}); }), "without a process grid call build(shapes)"));
  nn::List<nn::Linear> list;
  nn::Module root;
  list.add(root, "a", {.out = 2}), list.add(root, "b", {.out = 3});
  CHECK(list.size() == 2);
  CHECK(list[1].path() == "b");
}

TEST_CASE("modules: networks of several inputs and outputs") {
  const Shape volume{2, 6, 4, 4, 1}, vector{2, 2};
  const auto run = [](nn::Module& net, const Tensor& x, const Tensor& v) {
    Tape tape;
    const auto out = net.forward({x, v});
    require(out.size() == 2, "[test] {} outputs", out.size());
    return tape.gradient(mean(square(out[0])) + mean(square(out[1])), {net.parameters().find("conv.weight").value, v});
  };
  Two alone;
  alone.build(std::vector{volume, vector}, {.seed = 2, .dtype = DType::float64});
  CHECK(alone.parameters().size() == 4);
  const auto expected = run(alone, global_tensor(volume, 1), global_tensor(vector, 2));
  for (const int size : {1, 2, 3})
    check_on_ranks(size, "two inputs", [&](const Communicator& comm) {
      const auto grid = make_grid(comm, {.depth = comm.size()});
      const std::vector<LayoutPtr> layouts{activation_layout(grid, volume), replicated_layout(grid, vector)};
      Two net;
      net.build(layouts, {.seed = 2, .dtype = DType::float64});
      Tape tape;
      const auto out = net.forward({global_tensor(volume, 1, layouts[0]), global_tensor(vector, 2).with_layout(layouts[1])});
      // A replicated value counts once.
      const auto share = once(mean(square(out[0])) + mean(square(out[1])), comm);
      const auto found = tape.gradient(share, {net.parameters().find("conv.weight").value});
      require_close("weight", found[0].without_layout(), expected[0].without_layout());
    });
  Two other;
  CHECK(error_text([&] { other.build(volume); }) == "[two] takes a volume and a vector, not 1 inputs");
  CHECK(error_text([&] {
          CosmoFlow(CosmoFlowOptions{}).forward({Tensor(), Tensor()});
        }) == "[module] the network defines no function of 2 inputs");
  CHECK(error_text([&] { other.build(std::vector<Shape>{}); }) == "[module] a network needs an input");
}

TEST_CASE("modules: a table of any network, built or not, its own layers included") {
  Chain net;
  const Shape shape{2, 8, 6, 4, 2};
  const auto before = nn::summarise(net, {shape});
  CHECK(net.parameters().size() == 0);
  CHECK(net.buffers().empty());
  net.build(shape, {.seed = 1, .dtype = DType::float64});
  CHECK(net.buffers().at("norm.running_mean").dtype() == DType::float64);
  const auto after = nn::summarise(net, {shape});
  REQUIRE(after.size() == before.size());
  std::int64_t parameters = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    CHECK(after[i].name == before[i].name);
    CHECK(after[i].parameters == before[i].parameters);
    parameters += after[i].parameters;
  }
  CHECK(parameters == net.parameters().elements());
  CHECK(after[0].name == "conv1");
  CHECK(after[0].out == Shape{2, 8, 6, 4, 4});
  CHECK(after[0].parameters == 2 * 27 * 4 + 4);
  CHECK(after[0].flops == 2.0 * 2 * 8 * 6 * 4 * 4 * 27 * 2);
  CHECK(after.back().kind == "parameters");
  CHECK(after.back().name == "scale.factor");
  // Another size, and a network that is called twice.
  CHECK(nn::summarise(net, {{1, 16, 16, 16, 2}})[0].out == Shape{1, 16, 16, 16, 4});
  const auto text = nn::summary(net, shape);
  CHECK(text.find("conv1") != std::string::npos);
  CHECK(text.find(fmt::format("{}", parameters)) != std::string::npos);
  struct Shared : nn::Module {
    Tensor operator()(const Tensor& x) override { return fc(fc(x)); }
    nn::Linear fc{*this, "fc", {.out = 3}};
  } shared;
  CHECK(nn::summarise(shared, {{2, 3}})[1].parameters == 0);
  CHECK(error_text([&] { nn::summary(shared, Shape{2, 3, 4}); }).find("[fc] needs [N, features]") != std::string::npos);
  shared.build(Shape{2, 3});
  CHECK(shared.parameters().elements() == 12);
  CosmoFlow cosmoflow(CosmoFlowOptions{});
  std::int64_t all = 0;
  for (const auto& row : nn::summarise(cosmoflow, {{1, 32, 32, 32, 4}})) all += row.parameters;
  cosmoflow.build(Shape{1, 32, 32, 32, 4});
  CHECK(all == cosmoflow.parameters().elements());
}

TEST_CASE("modules: a step that a program writes is that of an optimizer, on every grid") {
  struct Net : nn::Module {
    Tensor operator()(const Tensor& x) override { return conv(x); }
    nn::Conv3d conv{*this, "conv", {.out = 3, .kernel = 3, .padding = 1}};
  };
  for (const int size : {1, 2})
    check_on_ranks(size, "a step", [&](const Communicator& comm) {
      const auto x = global_tensor({2, 6, 4, 4, 1}, 1, activation_layout(make_grid(comm, {.depth = size}), {2, 6, 4, 4, 1}));
      Net net;
      net.build(x.layout(), {.seed = 2, .dtype = DType::float64});
      SGD sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
      Tape tape(net);
      const auto gradients = tape.gradient(mean(square(net(x))));
      Tensors by_hand;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const auto& p = net.parameters()[i].value;
        const auto v = 0.9 * zeros_like(p) + gradients[i] * ones_like(p);
        by_hand.push_back(p - 0.1 * v);
        require(by_hand[i].layout() == p.layout() || *by_hand[i].layout() == *p.layout(), "[test] {}", by_hand[i]);
      }
      sgd.step(gradients);
      for (std::size_t i = 0; i < gradients.size(); ++i) require_close("step", by_hand[i], net.parameters()[i].value, 1e-15);
      const auto state = sgd.state()[0].value;
      require_close("state", 0.9 * state + gradients[0] - full_like(gradients[0], 1), 1.9 * gradients[0] - 1, 1e-14);
    });
}
