// Embeddings, norms of rows, convolutions in one and two dimensions as layers: parameters, values, grids.

#include <doctest/doctest.h>

#include "comm/distributed/upsample.h"
#include "models/nn/sequential.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Text : nn::Module {
  Tensor operator()(const Tensor& x) override { return rms(conv(norm(embedding(x)))); }
  nn::Embedding embedding{*this, "embedding", {.rows = 7, .out = 4}};
  nn::LayerNorm norm{*this, "norm"};
  nn::Conv1d conv{*this, "conv", {.out = 4, .kernel = 3, .padding = 1}};
  nn::RmsNorm rms{*this, "rms"};
};

Tensor words(const LayoutPtr& layout = {}) { return random_integers({3, 5}, {.key = 2}, 0, 7, DType::int64, layout); }

}  // namespace

TEST_CASE("row layers: names and shapes of parameters; the layers are the functions") {
  Text net;
  net.build(Shape{3, 5}, {.dtype = DType::float64});
  const auto& parameters = net.parameters();
  const std::vector<std::pair<std::string, Shape>> expected{{"embedding.weight", {7, 4}}, {"norm.gamma", {4}},
                                                            {"norm.beta", {4}},           {"conv.weight", {4, 1, 1, 3, 4}},
                                                            {"conv.bias", {4}},           {"rms.gamma", {4}}};
  REQUIRE(parameters.size() == expected.size());
  std::map<std::string, Tensor> values;
  for (std::size_t i = 0; i < parameters.size(); ++i) values[parameters[i].name] = parameters[i].value;
  for (const auto& [name, shape] : expected) {
    CAPTURE(name);
    REQUIRE(values.count(name) == 1);
    CHECK(values[name].shape() == shape);
  }
  auto y = layer_norm(embedding(words(), values["embedding.weight"]), values["norm.gamma"], values["norm.beta"]);
  y = conv1d(y, reshape(values["conv.weight"], {4, 3, 4}), values["conv.bias"], {.padding = 1});
  require_close("net", net(words()), rms_norm(y, values["rms.gamma"]), 0);
}

TEST_CASE("row layers: Conv2d is a Conv3d of one plane") {
  struct Net : nn::Module {
    Tensor operator()(const Tensor& x) override { return conv(x); }
    nn::Conv2d conv{
        *this, "conv", {.out = 2, .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}, .activation = Activation::relu}};
  } net;
  net.build(Shape{2, 6, 5, 3}, {.dtype = DType::float64});
  const auto x = global_tensor({2, 6, 5, 3}, 1);
  const auto& w = net.parameters()[net.parameters()[0].name == "conv.weight" ? 0 : 1].value;
  require_close("conv2d", net(x),
                conv2d(x, reshape(w, {2, 3, 2, 3}), {.stride = {2, 1}, .padding = {1, 0}, .activation = Activation::relu}),
                1e-14);
}

TEST_CASE("row layers: AdaptivePool3d is the function of its attributes") {
  struct Net : nn::Sequential {
    Net() {
      add<nn::AdaptivePool3d>("first", {.extents = {3, 2, 4}, .pooling = nn::Pooling::maximum});
      add<nn::AdaptivePool3d>("second", {.extents = 2});
    }
  } net;
  net.build(Shape{1, 5, 4, 6, 2}, {.dtype = DType::float64});
  const auto x = global_tensor({1, 5, 4, 6, 2}, 1);
  require_close("adaptive pooling", net(x), adaptive_avg_pool(adaptive_max_pool(x, {3, 2, 4}), {2, 2, 2}), 0);
}

TEST_CASE("row layers: a split batch, split channels and stored weights give the gradients of one rank") {
  const auto run = [](const LayoutPtr& on, bool stored) {
    Text net;
    const nn::BuildOptions options{.seed = 3, .dtype = DType::float64, .sharded_weights = stored};
    if (on) net.build(on, options);
    else net.build(Shape{3, 5}, options);
    Tape tape(net);
    const auto y = net(words(on));
    const auto loss = sum(y * constant(global_tensor({3, 5, 4}, 6, y.layout())));
    std::map<std::string, Tensor> gradients;
    const auto all = tape.gradient(loss);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& value = net.parameters()[i].value;
      gradients[net.parameters()[i].name] =
          value.layout() ? gather_all(all[i].without_layout().with_layout(value.layout())).without_layout() : all[i];
    }
    return gradients;
  };
  for (const int size : {2, 3, 4})
    check_on_ranks(size, "row layers", [&](const Communicator& comm) {
      const auto expected = run({}, false);
      const auto channels = size == 4 ? 2 : 1;
      const auto grid = make_grid(comm, {.sample = size / channels, .channel = channels});
      const auto layout = split_layout(grid, {3, 5}, {0});
      for (const bool stored : {false, true}) {
        const auto found = run(layout, stored);
        for (const auto& [name, gradient] : expected) require_close(name, found.at(name), gradient.without_layout(), 1e-12);
      }
    });
}
