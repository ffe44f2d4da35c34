// Activations: values against their formulas, their texts, and layers with activations on split grids and with pooling.

#include "ops/elementwise/activation.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "comm/distributed/distributed.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "tests/models/nn/layer_cases.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Known {
  Activation activation;
  std::string text;
  std::function<double(double)> f;
};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// The definitions of PyTorch and ONNX.
std::vector<Known> all_activations() {
  const double root = std::sqrt(2 / M_PI);
  return {
      {Activation::none, "none", [](double x) { return x; }},
      {Activation::relu, "relu", [](double x) { return x > 0 ? x : 0; }},
      {Activation::leaky_relu(), "leaky_relu(0.01)", [](double x) { return x > 0 ? x : 0.01 * x; }},
      {Activation::elu(), "elu(1)", [](double x) { return x > 0 ? x : std::exp(x) - 1; }},
      {Activation::elu(0.5), "elu(0.5)", [](double x) { return x > 0 ? x : 0.5 * (std::exp(x) - 1); }},
      {Activation::gelu, "gelu", [](double x) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }},
      {Activation::gelu_tanh, "gelu_tanh",
       [root](double x) { return x * 0.5 * (1 + std::tanh(root * (x + 0.044715 * std::pow(x, 3)))); }},
      {Activation::silu, "silu", [](double x) { return x * logistic(x); }},
      {Activation::sigmoid, "sigmoid", logistic},
      {Activation::tanh, "tanh", [](double x) { return std::tanh(x); }},
      {Activation::softplus, "softplus", [](double x) { return std::log(1 + std::exp(x)); }},
      {Activation::hard_swish, "hard_swish", [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; }},
  };
}

}  // namespace

TEST_CASE("activations: values in all floating-point types") {
  std::vector<double> places;
  for (int i = -48; i <= 48; ++i) places.push_back(i * 0.125);  // exact in 16 bits
  const std::pair<DType, double> types[]{
      {DType::float64, 1e-13}, {DType::float32, 2e-6}, {DType::bfloat16, 1e-2}, {DType::float16, 2e-3}};
  for (const auto& known : all_activations())
    for (const auto& type : types) {
      INFO(known.text, " in ", std::string(name_of(type.first)));
      const auto found = activate(from_vector({97}, places, type.first), known.activation).to_vector();
      for (std::size_t i = 0; i < places.size(); ++i) {
        const double expected = known.f(places[i]);
        CHECK(std::abs(found[i] - expected) <= type.second * (1 + std::abs(expected)));
      }
    }
}

TEST_CASE("activations: far from 0 values and derivatives are finite") {
  const std::vector<double> places{-1e4, -200, -40, 40, 200, 1e4};
  for (const auto& known : all_activations())
    for (const auto type : {DType::float64, DType::float32}) {
      if (known.activation.is_none()) continue;
      INFO(known.text, " in ", std::string(name_of(type)));
      const auto x = from_vector({6}, places, type).as_variable();
      Tape tape;
      const auto y = activate(x, known.activation);
      const auto first = tape.vjp({y}, {ones_like(y)}, {x}, Record::yes)[0];
      const auto second = tape.vjp({first}, {ones_like(x)}, {x})[0];
      for (const auto& values : {y.to_vector(), first.to_vector(), second ? second.to_vector() : std::vector<double>()})
        for (const double value : values) CHECK(std::isfinite(value));
    }
}

TEST_CASE("activations: names, parameters and equality") {
  for (const auto& known : all_activations()) {
    CHECK(to_string(known.activation) == known.text);
    CHECK(activation_of(known.text) == known.activation);
  }
  CHECK(activation_of("leaky_relu") == Activation::leaky_relu(0.01));
  CHECK(activation_of("elu") == Activation::elu(1));
  CHECK(Activation::leaky_relu(0) == Activation::relu);
  CHECK(Activation::leaky_relu(1) == Activation::none);
  CHECK(Activation::elu(0.5) != Activation::elu(1));
  CHECK(Activation::silu != Activation::gelu);
  for (const char* text : {"", "swish", "relu(1)", "elu(", "elu(x)", "elu(1)2", "(1)"})
    CHECK(error_text([&] { activation_of(text); }).find("is none of none, relu, leaky_relu") != std::string::npos);
  CHECK(error_text([] { Activation::leaky_relu(-1); }) == "[leaky_relu] the slope is not negative, got -1");
}

TEST_CASE("activations: a convolution that overlaps its halos composes them") {
  check_on_ranks(2, "overlap", [](const Communicator& comm) {
    const Shape shape{2, 8, 5, 4, 3};
    const auto w = global_tensor({4, 3, 3, 3, 3}, 2), bias = global_tensor({4}, 3);
    const auto grid = make_grid(comm, {.depth = 2}, Overlap::always);
    const auto layout = activation_layout(grid, shape);
    for (const auto activation : {Activation::silu, Activation::elu(0.5), Activation::sigmoid}) {
      const ConvAttributes a{.padding = 1, .activation = activation};
      const auto gradients = [&](const Tensor& x) {
        Tape tape;
        const auto y = conv(x, w, bias, a);
        auto result = tape.vjp({y}, {constant(global_tensor({2, 8, 5, 4, 4}, 4, y.layout()))}, {x, w, bias});
        result.push_back(y);
        return result;
      };
      const auto expected = gradients(global_tensor(shape, 1)), found = gradients(global_tensor(shape, 1, layout));
      for (std::size_t i = 0; i < found.size(); ++i)
        require_close(fmt::format("{}, {}", to_string(activation), i), found[i],
                      found[i].layout() ? part_of(expected[i], found[i].layout()) : expected[i], 1e-12);
    }
  });
}

TEST_CASE("activations: those that may fall come before max pooling") {
  struct Net : nn::Module {
    explicit Net(Activation activation) : conv(*this, "conv", {.out = 3, .kernel = 2, .activation = activation}) {}
    Tensor operator()(const Tensor& x) override {
      return conv.pooled(x, "pool", nn::Pooling::maximum, {.kernel = 2, .stride = 2});
    }
    nn::Conv3d conv;
  };
  for (const auto& known : all_activations()) {
    CAPTURE(known.text);
    Net net(known.activation);
    const Shape shape{1, 5, 7, 5, 2};
    net.build(shape, {.seed = 1, .dtype = DType::float64});
    const auto x = constant(global_tensor(shape, 5));
    const auto expected = max_pool(net.conv(x), {.kernel = 2, .stride = 2});
    CHECK_NOTHROW(require_close(known.text, net(x), expected, 1e-13));
  }
}
