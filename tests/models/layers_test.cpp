// Layers with state.

#include "models/nn/layers.h"

#include <doctest/doctest.h>

#include "framework/warning.h"
#include "models/networks/projection.h"
#include "models/train/session.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/recompute.h"
#include "ops/reduce.h"
#include "ops/views.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("layers: running statistics weigh ranks by what they hold") {
  const Shape shape{2, 3, 2, 2, 2};
  const auto whole = global_tensor(shape, 3);
  const auto first = channel_moments(slice(whole, 0, 0, 1)), second = channel_moments(slice(whole, 0, 1, 2));
  // Twelve values per sample and channel; the mean of the two samples' means and of their unbiased variances.
  const auto mean = (first.mean + second.mean) * 0.5, variance = (first.m2 + second.m2) * (0.5 / 11);
  for (const auto over : {distributed::Statistics::local, distributed::Statistics::spatial_group})
    for (const int ranks : {2, 3, 5})
      check_on_ranks(ranks, "running statistics", [&](const Communicator& comm) {
        const auto layout =
            activation_layout(make_grid(comm, {.sample = comm.size()}), shape);  // beyond two ranks some are empty
        struct Net : nn::Module {
          nn::BatchNorm norm;
          explicit Net(distributed::Statistics s) : norm(*this, "norm", {.momentum = 0, .statistics = s}) {}
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

namespace {

constexpr nn::LinearAttributes four{.out = 4};

// A factor for each channel, as a newcomer writes it and as it works on any grid.
struct NaiveScale : nn::Module {
  using nn::Module::Module;
  Tensor operator()(const Tensor& x) override { return x * parameter("factor", {x.dim(-1)}, nn::constant_value(1)); }
};
struct Scale : nn::Module {
  using nn::Module::Module;
  Tensor operator()(const Tensor& x) override {
    const auto factor = parameter("factor", {x.dim(-1)}, nn::constant_value(3));
    return (x.without_layout() * distributed::parameter_for(x, factor)).with_layout(x.layout());
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
  // By two ways of writing one path, and as temporaries of the network's function, one after the other.
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
    ProjectionHead head{*this, "head", {.layers = 2, .hidden = 4, .out = 4}};  // makes its layers in each call
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

TEST_CASE("layers: a layer of one's own that mixes x and its parameter is named, with what to call") {
  check_on_ranks(2, "own layers", [](const Communicator& comm) {
    const Shape shape{1, 5, 2, 2, 3};
    const auto layout = activation_layout(make_grid(comm, {.depth = comm.size()}), shape);
    const auto x = global_tensor(shape, 3, layout);
    const auto check = [](const std::string& start, const std::function<void()>& body) {
      const auto text = error_text(body);
      require(text.starts_with(start + "; scale.factor is a parameter") && has(text, "parameter_for") && has(text, "own_layer"),
              "[test] {}", text);
    };
    const std::string mixed = "[multiply] mixes a distributed tensor with a local one";
    Of<NaiveScale> fresh, local, built;
    check(mixed, [&] { fresh.build(layout); });
    local.build(shape, {.dtype = DType::float64});
    check(mixed, [&] { local(x); });
    // A parameter that was built for a grid has a layout; any op that meets it says the same.
    Of<Scale> right;
    right.build(layout, {.dtype = DType::float64});
    struct Second : nn::Module {
      Tensor operator()(const Tensor& y) override {
        if (building()) return parameter("scale.factor", {3}, nn::constant_value(1)), y;
        const auto w = parameter("scale.factor", {3}, nn::constant_value(1));
        return use(y, w);
      }
      std::function<Tensor(const Tensor&, const Tensor&)> use;
    } net;
    net.build(layout, {.dtype = DType::float64});
    net.use = [](const Tensor& y, const Tensor& w) { return y + w; };
    check("[add] one operand is split over grid axis depth, the other is the same on all its ranks", [&] { net(x); });
    net.use = [](const Tensor& y, const Tensor& w) { return matmul(y, unsqueeze(w, 1)); };
    require(error_text([&] { net(x); }).starts_with("[matmul] across a split dimension"), "[test] a view of a parameter");
    net.use = [](const Tensor& y, const Tensor& w) { return linear(y, w); };
    check("[linear] is not defined on a distributed tensor", [&] { net(x); });
    require(has(error_text([&] { x* ones({3}, DType::float64); }), "see distributed::parameter_for()"), "[test] unnamed");
  });
}

TEST_CASE("layers: a layer of one's own with parameter_for is the same on every grid, to second order") {
  const Shape shape{2, 5, 3, 2, 3};
  const auto run = [](nn::Module& net, const Tensor& x) {
    const auto& w = net.parameters()[0].value;
    Tape tape;
    auto g = tape.gradient(mean(square(square(net(x)))), {x, w}, Record::yes);
    auto h = tape.gradient(sum(square(g[0])), {x, w});
    return Tensors{g[0], h[0], g[1], h[1]};
  };
  Of<Scale> alone;
  alone.build(shape, {.dtype = DType::float64});
  const auto expected = run(alone, global_tensor(shape, 3));
  for (const int size : {1, 2, 3, 4})
    check_on_ranks(size, "own layer", [&](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(comm.size()));
      for (const GridExtents& extents : {GridExtents{.sample = comm.size()}, GridExtents{.depth = comm.size()}}) {
        const auto layout = with_random_cuts(activation_layout(make_grid(comm, extents), shape), dice);
        Of<Scale> net;
        net.build(layout, {.dtype = DType::float64});
        const auto found = run(net, global_tensor(shape, 3, layout));
        for (std::size_t i = 0; i < 4; ++i)
          require_close(fmt::format("{}", i), found[i].without_layout(),
                        i < 2 ? part_of(expected[i], layout).without_layout() : expected[i].without_layout());
      }
    });
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
  CHECK(told[0].find("draws the random numbers of step 0 again: nobody has called set_step()") != std::string::npos);
}
