// Layers with state.

#include "models/nn/layers.h"

#include <doctest/doctest.h>

#include <limits>

#include "comm/distributed/normalisation.h"
#include "framework/base/warning.h"
#include "framework/optim/optimizer.h"
#include "models/networks/projection.h"
#include "models/train/session.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/norm/channel_norm.h"
#include "ops/random/random.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("layers: running statistics weigh ranks by what they hold") {
  const Shape shape{2, 3, 2, 2, 2};
  const auto whole = global_tensor(shape, 3);
  const auto first = channel_moments(slice(whole, 0, 0, 1)), second = channel_moments(slice(whole, 0, 1, 2));
  // Twelve values per sample and channel; the mean of the two samples' means, and of their unbiased variances.
  const auto mean = (first.mean + second.mean) * 0.5, variance = (first.m2 + second.m2) * (0.5 / 11);
  for (const auto over : {StatisticsOver::local, StatisticsOver::spatial_group})
    for (const int ranks : {2, 3, 5})
      check_on_ranks(ranks, "running statistics", [&](const Communicator& comm) {
        const auto layout =
            activation_layout(make_grid(comm, {.sample = comm.size()}), shape);  // with more than two ranks some are empty
        struct Net : nn::Module {
          nn::BatchNorm norm;
          explicit Net(StatisticsOver s) : norm(*this, "norm", {.momentum = 0, .statistics = s}) {}
          Tensor operator()(const Tensor& x) override { return norm(x); }
        } net(over);
        net.build(layout, {.dtype = DType::float64});
        net(global_tensor(shape, 3, layout));
        const auto close = [&](const std::string& name, const Tensor& wanted) {
          const auto got = net.buffers().at("norm." + name).to_vector(), expected = wanted.to_vector();
          for (std::size_t c = 0; c < 2; ++c)
            require(std::abs(got[c] - expected[c]) < 1e-14, "[test] {}: {} instead of {}", name, got[c], expected[c]);
        };
        close("running_mean", mean);
        close("running_variance", variance);
      });
}

TEST_CASE("layers: norms refuse a variance that their type does not hold") {
  const auto gamma = ones({4}, DType::float32), beta = zeros({4}, DType::float32);
  const auto x = random_normal({4, 3, 3, 3, 4}, {.key = 5}, 0, 1e30, DType::float32);
  const std::string reason = "[normalise] channel 0: the variance is infinite in float32";
  CHECK(has(error_text([&] { batch_norm(x, gamma, beta, {}); }), reason));
  for (const std::int64_t groups : {0, 1, 2}) {
    CHECK(has(error_text([&] { group_norm(x, gamma, beta, {.groups = groups}); }), reason));
    // With one cell no channel varies by itself, but the channels of a group differ.
    const auto cell = slice(slice(slice(x, 1, 0, 1), 2, 0, 1), 3, 0, 1);
    CHECK(has(error_text([&] { group_norm(cell, gamma, beta, {.groups = groups}); }), reason) == (groups > 0));
  }
  // In evaluation, for the running statistics.
  const auto infinite = constant(gamma * std::numeric_limits<double>::infinity());
  CHECK(has(error_text([&] { normalise(x, {beta, infinite}, gamma, beta, {}); }), reason));
  // Variances in the range of float64 are normalised.
  const auto check = [](const Tensor& y) {
    double squares = 0;
    for (const double value : y.to_vector()) squares += value * value;
    CHECK(squares / static_cast<double>(y.elements()) == doctest::Approx(1).epsilon(1e-3));
  };
  check(batch_norm(x * 1e-14, gamma, beta, {}).y);
  check(batch_norm(cast(x, DType::float64), cast(gamma, DType::float64), cast(beta, DType::float64), {}).y);
}

namespace {

constexpr nn::LinearAttributes four{.out = 4};

// A factor for each channel, by plain elementwise functions; and as in a layer that computes with its block.
struct Scale : nn::Module {
  using nn::Module::Module;
  Tensor operator()(const Tensor& x) override { return x * parameter("factor", {x.dim(-1)}, nn::constant_value(3)); }
};
struct LocalScale : nn::Module {
  using nn::Module::Module;
  Tensor operator()(const Tensor& x) override {
    const auto factor = parameter("factor", {x.dim(-1)}, nn::constant_value(3));
    return (x.without_layout() * parameter_for(x, factor)).with_layout(x.layout());
  }
};
// Functions of parameters, and parameters of which each rank needs a different block.
struct Functions : nn::Module {
  using nn::Module::Module;
  Tensor operator()(const Tensor& x) override {
    const auto shape = x.layout() ? x.layout()->global : x.shape();
    const auto normal = [](const Shape& of, DType dtype, const Philox& random) { return random_normal(of, random, 0, 1, dtype); };
    const auto w = parameter("factor", {x.dim(-1)}, normal);
    const auto place = parameter("place", {shape[1], shape[2], 1, shape[4]}, normal);
    const auto one = parameter("one", {}, nn::constant_value(0.75));
    const auto y = maximum(x * exp(w) / (1 + square(one)) + place, place - x) * (place * w);
    return where(less(y, w), y * one, pow(square(y) + 1, one) - softplus(w) * y);
  }
};
template <class Layer>
struct Of : nn::Module {
  Tensor operator()(const Tensor& x) override { return layer(x); }
  Layer layer{*this, "scale"};
};

}  // namespace

TEST_CASE("layers: two layers of one name are refused where they are made") {
  const std::string refused = "[module] there are two layers named ";
  struct Twice : nn::Module {
    nn::Linear a{*this, "fc", four}, b{*this, "fc", four};
  };
  CHECK(error_text([] { Twice net; }).starts_with(refused + "fc, which would share their parameters"));
  struct Inner : nn::Module {
    using nn::Module::Module;
    nn::Dropout a{*this, "part"};
    nn::BatchNorm b{*this, "part"};
  };
  struct Nested : nn::Module {
    Inner inner{*this, "block"};
  };
  CHECK(error_text([] { Nested net; }).starts_with(refused + "block.part"));
  // By two spellings of one path, and as temporaries in the network's function, one after the other.
  struct Dotted : nn::Module {
    nn::Dropout block{*this, "block"}, part{block, "part"}, other{*this, "block.part"};
  };
  CHECK(error_text([] { Dotted net; }).starts_with(refused + "block.part"));
  struct Local : nn::Module {
    Tensor operator()(const Tensor& x) override {
      const auto y = nn::Linear(*this, "fc", four)(x);
      return nn::Linear(*this, "fc", four)(y);
    }
  } local;
  CHECK(error_text([&] { local.build(Shape{2, 4}); }).starts_with(refused + "fc"));
}

TEST_CASE("layers: a layer that is called twice is shared, and names are free again when their layers are gone") {
  struct Shared : nn::Module {
    Tensor operator()(const Tensor& x) override { return head(fc(fc(x))) + head(x); }
    nn::Linear fc{*this, "fc", four};
    ProjectionHead head{*this, "head", {.layers = 2, .hidden = 4, .out = 4}};  // creates its layers in each call
  } net;
  const auto x = global_tensor({8, 4}, 3);
  net.build(x.shape(), {.dtype = DType::float64});
  CHECK(net.parameters().size() == 2 + 4);
  const auto w = net.parameters().find("fc.weight").value, b = net.parameters().find("fc.bias").value;
  Tape tape;
  const auto g = tape.gradient(sum(net.fc(net.fc(x))), {w})[0];
  Tape plain;
  require_close("shared", g, plain.gradient(sum(linear(linear(x, w, b), w, b)), {w})[0]);

  std::unique_ptr<nn::Linear> outlives;
  {
    nn::Module root;
    for (int i = 0; i < 2; ++i) nn::Linear(root, "fc", four);
    outlives = std::make_unique<nn::Linear>(root, "fc", four);
    CHECK_THROWS_AS(nn::Linear(root, "fc", four), Error);
    outlives = nullptr;
    outlives = std::make_unique<nn::Linear>(root, "fc", four);
  }
}

TEST_CASE("layers: an op that cannot take a parameter beside a distributed tensor names it, with what to do") {
  check_on_ranks(2, "own layers", [](const Communicator& comm) {
    const Shape shape{1, 5, 2, 2, 3};
    const auto layout = activation_layout(make_grid(comm, {.depth = comm.size()}), shape);
    const auto x = global_tensor(shape, 3, layout);
    const auto check = [](const std::string& start, const std::string& advice, const std::function<void()>& body) {
      const auto text = error_text(body);
      require(text.starts_with(start + "; scale.factor is a parameter") && has(text, advice), "[test] {}", text);
    };
    Of<Scale> local;
    local.build(shape, {.dtype = DType::float64});
    check("[multiply] mixes a distributed tensor with a local one", "build() it with its input's layout", [&] { local(x); });
    struct Second : nn::Module {
      Tensor operator()(const Tensor& y) override {
        if (building()) return parameter("scale.factor", {3}, nn::constant_value(1)), y;
        const auto w = parameter("scale.factor", {3}, nn::constant_value(1));
        return use(y, w);
      }
      std::function<Tensor(const Tensor&, const Tensor&)> use;
    } net;
    net.build(layout, {.dtype = DType::float64});
    net.use = [](const Tensor& y, const Tensor& w) { return matmul(y, unsqueeze(w, 1)); };
    require(error_text([&] { net(x); }).starts_with("[matmul] across a split dimension"), "[test] a view of a parameter");
    net.use = [](const Tensor& y, const Tensor& w) { return local::linear(y, w); };
    check("[linear] is not defined on a distributed tensor", "parameter_for(x, parameter)", [&] { net(x); });
    net.use = [](const Tensor& y, const Tensor& w) { return sum(y) + sum(w); };
    require(has(error_text([&] { net(x); }), "once per rank; write once() around it"), "[test] a share and a parameter");
    require(has(error_text([&] { x* ones({3}, DType::float64); }), "replicated_layout()"), "[test] unnamed");
    require(has(error_text([&] {
                  x* ones({4, 1, 1, 3}, DType::float64)
                      .with_layout(replicated_layout(std::dynamic_pointer_cast<const Grid>(layout->grid), {4, 1, 1, 3}));
                }),
                "[multiply] shapes do not fit"),
            "[test] another extent");
  });
}

TEST_CASE("layers: a layer of one's own is the same on every grid, to second order") {
  const Shape shape{2, 5, 3, 2, 3};
  const auto run = [](nn::Module& net, const Tensor& x) {
    Tensors in{x};
    for (const auto& w : net.parameters().tensors()) in.push_back(w);
    Tape tape;
    auto g = tape.gradient(mean(square(square(net(x)))), in, Record::yes);
    auto h = tape.gradient(sum(square(g[0])), in);
    g.insert(g.end(), h.begin(), h.end());
    return g;
  };
  const auto check = [&]<class Layer>(const char* what, const Layer&) {
    Layer alone;
    alone.build(shape, {.seed = 5, .dtype = DType::float64});
    const auto expected = run(alone, global_tensor(shape, 3));
    for (const int size : {1, 2, 3, 4})
      check_on_ranks(size, what, [&](const Communicator& comm) {
        Dice dice(static_cast<std::uint64_t>(comm.size()));
        for (const GridExtents& extents :
             {GridExtents{.sample = comm.size()}, GridExtents{.depth = comm.size()},
              comm.size() == 4 ? GridExtents{.sample = 2, .height = 2} : GridExtents{.height = comm.size()}}) {
          const auto layout = with_random_cuts(activation_layout(make_grid(comm, extents), shape), dice);
          Layer net;
          net.build(layout, {.seed = 5, .dtype = DType::float64});
          const auto found = run(net, global_tensor(shape, 3, layout));
          for (std::size_t i = 0; i < found.size(); ++i)
            require_close(
                fmt::format("{}", i), found[i].without_layout(),
                i % (found.size() / 2) == 0 ? part_of(expected[i], layout).without_layout() : expected[i].without_layout());
        }
      });
  };
  check("factor", Of<Scale>{});
  check("factor of a part", Of<LocalScale>{});
  check("functions", Of<Functions>{});
}

TEST_CASE("layers: a parameter is rounded beside activations of 16 bits, and its gradient is float32") {
  for (const int size : {1, 2})
    check_on_ranks(size, "16 bits", [](const Communicator& comm) {
      const Shape shape{2, 4, 2, 2, 3};
      const auto layout = activation_layout(make_grid(comm, {.depth = comm.size()}), shape);
      Of<Scale> net;
      net.build(layout, {.compute = DType::bfloat16});
      const auto x = cast(global_tensor(shape, 3, layout), DType::bfloat16);
      Tape tape;
      const auto y = net(x);
      require(y.dtype() == DType::bfloat16, "[test] {}", y);
      const auto w = net.parameters()[0].value;
      const auto g = tape.gradient(sum(cast(y, DType::float32)), {w})[0];
      require(g.dtype() == DType::float32 && g.shape() == w.shape(), "[test] {}", g);
    });
}

TEST_CASE("layers: a transposed convolution has groups, dilation and activation") {
  struct Net : nn::Module {
    Tensor operator()(const Tensor& x) override { return conv(x); }
    nn::ConvTranspose3d conv{*this,
                             "conv",
                             {.out = 4,
                              .kernel = {2, 3, 2},
                              .stride = {1, 2, 1},
                              .padding = {0, 1, 0},
                              .output_padding = {0, 1, 0},
                              .dilation = {2, 1, 1},
                              .groups = 2,
                              .activation = Activation::leaky_relu(0.25)}};
  };
  const Shape shape{1, 6, 5, 3, 6};
  const auto whole = global_tensor(shape, 3);
  Net alone;
  alone.build(shape, {.seed = 4, .dtype = DType::float64});
  const auto &w = alone.parameters().find("conv.weight").value, &b = alone.parameters().find("conv.bias").value;
  CHECK(w.shape() == Shape{6, 2, 3, 2, 2});
  const auto plain = leaky_relu(
      local::conv_transpose(
          whole, w,
          {.stride = {1, 2, 1}, .dilation = {2, 1, 1}, .padding = {0, 1, 0}, .output_padding = {0, 1, 0}, .groups = 2}) +
          b,
      0.25);
  CHECK(plain.shape() == Shape{1, 8, 10, 4, 4});
  for (const int size : {1, 2, 3})
    check_on_ranks(size, "transposed convolution", [&](const Communicator& comm) {
      const auto layout = activation_layout(make_grid(comm, {.depth = comm.size()}), shape);
      Net net;
      net.build(layout, {.seed = 4, .dtype = DType::float64});
      const auto y = net(global_tensor(shape, 3, layout));
      require_close("transposed convolution", y.without_layout(), part_of(plain, y.layout()).without_layout());
    });
  nn::ConvTranspose3d bad(alone, "bad", {.out = 3, .groups = 2});
  CHECK(error_text([&] { bad(whole); }).find("not a multiple of 2 groups") != std::string::npos);
}

TEST_CASE("layers: an optimizer's step is the network's, so that dropout draws new masks without being told") {
  struct Net : nn::Module {
    Tensor operator()(const Tensor& x) override { return dropout(x * parameter("w", {x.dim(-1)}, nn::constant_value(1))); }
    nn::Dropout dropout{*this, "dropout", {.keep = 0.5}};
  } net;
  const auto x = ones({64}, DType::float64);
  net.build(x.shape(), {.dtype = DType::float64});
  SGD sgd(net, {.learning_rate = 0});
  const auto masked = [&](bool steps) {
    Tape tape(net);
    const auto y = net(x);
    const auto gradients = tape.gradient(sum(y));
    if (steps) sgd.step(gradients);
    return y.to_vector();
  };
  detail::take_warnings();
  CHECK(net.step() == 0);
  const auto first = masked(true), second = masked(true);
  CHECK(net.step() == 2);
  CHECK(first != second);
  CHECK(detail::take_warnings().empty());
  net.set_step(0);
  CHECK(masked(true) == first);
  CHECK(masked(false) == second);
  sgd.load_state(sgd.state(), 1);  // as if read from a file
  CHECK(net.step() == 1);
}

TEST_CASE("layers: training that never tells its step is warned of one dropout mask for ever") {
  struct Net : nn::Module {
    Tensor operator()(const Tensor& x) override {
      const auto y = recompute([this](const Tensor& z) { return dropout(z); }, x);
      return dropout(square(y)) + own();
    }
    Tensor own() { return constant(full({}, random().uniform(0), DType::float64)); }
    nn::Dropout dropout{*this, "dropout", {.keep = 0.5}};
  };
  const auto x = global_tensor({16}, 3);
  const auto warnings = [&](int steps, bool tells, bool training) {
    Net net;
    net.build(x.shape(), {.dtype = DType::float64});
    net.train(training);
    detail::take_warnings();
    for (int step = 0; step < steps; ++step) {
      if (tells) net.set_step(step);
      Tape tape;
      tape.gradient(sum(net(x) + net(x)), {x});
    }
    return detail::take_warnings();
  };
  CHECK(warnings(1, false, true).empty());
  CHECK(warnings(3, true, true).empty());
  CHECK(warnings(3, false, false).empty());
  const auto told = warnings(3, false, true);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("draws the random numbers of step 0 again: no optimizer has made a step since") != std::string::npos);
}
