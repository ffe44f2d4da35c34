// Encoders of contrastive training: parameter counts, shapes, a residual block as plain loops, and whole networks on grids of
// samples and space against one rank.

#include <doctest/doctest.h>

#include <cmath>

#include "models/losses/contrastive/join_views.h"
#include "models/networks/conv4.h"
#include "models/networks/encoder3d.h"
#include "models/networks/projection.h"
#include "models/networks/resnet.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/models/networks/encoder_cases.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

std::int64_t count(nn::Module& net, const Shape& input) {
  net.build(input, {.device = DeviceKind::dry});
  return net.parameters().elements();
}
std::int64_t resnet_count(const ResNetOptions& options, const Shape& input = {1, 1, 224, 224, 3}) {
  ResNet net(options);
  return count(net, input);
}

template <class Net>
Shape output(Net&& net, const Shape& input) {
  net.build(input, {.device = DeviceKind::dry});
  UseDevice dry(DeviceKind::dry);
  return net(Tensor({input, DType::float32})).shape();
}

}  // namespace

TEST_CASE("encoders: ResNets have exactly the known numbers of parameters") {
  CHECK(resnet_count({.depth = 50, .classes = 1000}) == 25557032);
  CHECK(resnet_count({.depth = 18, .classes = 1000}) == 11689512);
  CHECK(resnet_count({.depth = 34, .classes = 1000}) == 21797672);
  CHECK(resnet_count({.depth = 101, .classes = 1000}) == 44549160);
  CHECK(resnet_count({.depth = 152, .classes = 1000}) == 60192808);
  // Without the classifier there are 2048 * 1000 + 1000 fewer parameters, and 512 * 1000 + 1000.
  CHECK(resnet_count({.depth = 50}) == 25557032 - 2049000);
  CHECK(resnet_count({.depth = 18}) == 11689512 - 513000);
  // The small stem has 3 * 3 taps instead of 7 * 7.
  CHECK(resnet_count({.depth = 18, .small_images = true}, {1, 1, 32, 32, 3}) == 11689512 - 513000 - 64 * 3 * 40);
}

TEST_CASE("encoders: shapes of results") {
  CHECK(output(ResNet({.depth = 50}), {2, 1, 224, 224, 3}) == Shape{2, 2048});
  CHECK(output(ResNet({.depth = 18}), {2, 1, 65, 97, 1}) == Shape{2, 512});
  CHECK(output(ResNet({.depth = 18, .classes = 10, .small_images = true}), {3, 1, 28, 28, 1}) == Shape{3, 10});
  CHECK(ResNet({.depth = 50}).features() == 2048);
  CHECK(ResNet({.depth = 18}).features() == 512);
  CHECK(output(Conv4(), {5, 1, 28, 28, 1}) == Shape{5, 64});
  CHECK(output(Conv4(), {5, 1, 32, 32, 3}) == Shape{5, 256});
  CHECK(output(Conv4({.width = 32, .growth = 2, .average = true}), {5, 1, 32, 32, 3}) == Shape{5, 256});
  for (const Shape& volume : {Shape{2, 28, 28, 28, 1}, Shape{1, 64, 64, 64, 2}, Shape{1, 256, 256, 256, 1},
                              Shape{1, 1, 32, 32, 3}, Shape{1, 20, 150, 150, 1}})
    CHECK(output(Encoder3d(), volume) == Shape{volume[0], 128});
  CHECK(output(Encoder3d({.width = 8, .blocks = {2, 2}, .bottleneck = true}), {2, 28, 28, 28, 1}) == Shape{2, 64});
}

TEST_CASE("encoders: strides of the 3D encoder make slabs cubes, and its parameters know no extents") {
  const auto last_extents = [](const Shape& volume) {
    Encoder3d net;
    net.build(volume, {.device = DeviceKind::dry});
    UseDevice dry(DeviceKind::dry);
    nn::LayerTrace trace;
    net(Tensor({volume, DType::float32}));
    return trace.layers.back().out;
  };
  CHECK(last_extents({1, 28, 28, 28, 1}) == Shape{1, 4, 4, 4, 128});
  CHECK(last_extents({1, 128, 128, 128, 1}) == Shape{1, 4, 4, 4, 128});
  CHECK(last_extents({1, 16, 128, 128, 1}) == Shape{1, 4, 4, 4, 128});
  CHECK(last_extents({1, 1, 64, 64, 1}) == Shape{1, 1, 4, 4, 128});
  CHECK(last_extents({1, 2, 3, 9, 1}) == Shape{1, 2, 2, 2, 128});
  Encoder3d cube, slab;
  CHECK(count(cube, {1, 28, 28, 28, 1}) == count(slab, {1, 5, 200, 150, 1}));
}

TEST_CASE("encoders: what cannot be is refused by name") {
  const auto refused = [](const std::string& start, const std::function<void()>& body) {
    const auto text = error_text(body);
    INFO(text);
    CHECK(text.starts_with(start));
  };
  refused("[resnet] depth must be 10, 18, 34, 50, 101 or 152, got 20", [] { ResNet net({.depth = 20}); });
  refused("[resnet] needs images [N, 1, H, W, C]", [] { ResNet().build(Shape{1, 4, 32, 32, 3}); });
  refused("[conv4] needs images [N, 1, H, W, C]", [] { Conv4().build(Shape{1, 32, 32, 3}); });
  refused("[conv4] width, blocks and growth must be positive", [] { Conv4 net({.blocks = 0}); });
  refused("[encoder3d] width must be positive", [] { Encoder3d net({.blocks = {}}); });
  refused("[stage1.block1] kernels of residual blocks must be odd", [] { Encoder3d net({.kernel = 2}); });
  nn::Module root;
  refused("[head] a projection head has 1 to 3 layers, got 4", [&] { ProjectionHead(root, "head", {.layers = 4}); });
}

TEST_CASE("encoders: weights start He-normal by fan-out, last gammas at zero on request") {
  ResNet net({.depth = 18, .zero_start = true});
  net.build(Shape{1, 1, 32, 32, 3}, {.seed = 5, .dtype = DType::float64});
  const auto& w = net.parameters().find("stage3.block1.conv2.weight").value;
  CHECK(w.shape() == Shape{256, 1, 3, 3, 256});
  const double variance = mean(square(w), {0, 1, 2, 3, 4}).item();
  CHECK(variance * (256 * 9) / 2 == doctest::Approx(1).epsilon(0.01));
  const auto sum_of = [&](const std::string& name) { return sum(net.parameters().find(name).value).item(); };
  CHECK(sum_of("stage2.block2.norm2.gamma") == 0);
  CHECK(sum_of("stage2.block2.norm1.gamma") == 128);
  CHECK(sum_of("stage2.block1.norm_shortcut.gamma") == 128);
  for (std::size_t i = 0; i < net.parameters().size(); ++i) {
    const auto& p = net.parameters()[i];
    CHECK(p.decay == (p.name.ends_with("weight")));
  }
}

namespace {

// [n][h][w][c] as plain loops; odd kernels, padded by half of them.
struct Image {
  std::int64_t n = 0, h = 0, w = 0, c = 0;
  std::vector<double> values;
  double& at(std::int64_t i, std::int64_t y, std::int64_t x, std::int64_t k) {
    return values[static_cast<std::size_t>(((i * h + y) * w + x) * c + k)];
  }
  double get(std::int64_t i, std::int64_t y, std::int64_t x, std::int64_t k) {
    return y < 0 || y >= h || x < 0 || x >= w ? 0 : at(i, y, x, k);
  }
};
Image image(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
  return {n, h, w, c, std::vector<double>(static_cast<std::size_t>(n * h * w * c))};
}

Image convolved(Image x, const Tensor& weight, std::int64_t stride) {
  const auto values = weight.to_vector();
  const auto out = weight.dim(0), k = weight.dim(2), pad = k / 2;
  auto y = image(x.n, (x.h + stride - 1) / stride, (x.w + stride - 1) / stride, out);
  for (std::int64_t i = 0; i < y.n; ++i)
    for (std::int64_t r = 0; r < y.h; ++r)
      for (std::int64_t s = 0; s < y.w; ++s)
        for (std::int64_t o = 0; o < out; ++o)
          for (std::int64_t u = 0; u < k; ++u)
            for (std::int64_t v = 0; v < k; ++v)
              for (std::int64_t c = 0; c < x.c; ++c)
                y.at(i, r, s, o) += values[static_cast<std::size_t>(((o * k + u) * k + v) * x.c + c)] *
                                    x.get(i, r * stride + u - pad, s * stride + v - pad, c);
  return y;
}

Image normalised(Image x, const Tensor& gamma, const Tensor& beta) {
  const auto a = gamma.to_vector(), b = beta.to_vector();
  const auto per_channel = static_cast<double>(x.n * x.h * x.w);
  for (std::int64_t c = 0; c < x.c; ++c) {
    double mean = 0, variance = 0;
    const auto each = [&](auto&& f) {
      for (std::size_t i = static_cast<std::size_t>(c); i < x.values.size(); i += static_cast<std::size_t>(x.c)) f(x.values[i]);
    };
    each([&](double& v) { mean += v / per_channel; });
    each([&](double& v) { variance += (v - mean) * (v - mean) / per_channel; });
    each([&](double& v) {
      v = (v - mean) / std::sqrt(variance + 1e-5) * a[static_cast<std::size_t>(c)] + b[static_cast<std::size_t>(c)];
    });
  }
  return x;
}

Image rectified(Image x) {
  for (auto& v : x.values) v = std::max(v, 0.0);
  return x;
}

struct Block : nn::Module {
  Block(const nn::ResidualAttributes& attributes, const Triple& s) : block(*this, "block", attributes), stride(s) {}
  Tensor operator()(const Tensor& x) override { return block(x, stride); }
  nn::ResidualBlock block;
  Triple stride;
};

}  // namespace

TEST_CASE("encoders: residual blocks are what their formulas say") {
  for (const bool bottleneck : {false, true})
    for (const std::int64_t stride : {1, 2})
      for (const std::int64_t channels : {4, 16}) {
        Block net({.width = 4, .bottleneck = bottleneck, .kernel = {1, 3, 3}}, {1, stride, stride});
        const Shape shape{2, 1, 7, 6, channels};
        net.build(shape, {.seed = 2, .dtype = DType::float64});
        // All gammas and betas are different.
        for (std::size_t i = 0; i < net.parameters().size(); ++i) {
          auto& p = net.parameters()[i];
          if (p.name.ends_with("weight")) continue;
          const auto values = global_tensor(p.value.shape(), 70 + i).to_vector();
          for (std::size_t j = 0; j < values.size(); ++j) p.value.mutable_data<double>()[j] = values[j];
        }
        const auto x = global_tensor(shape, 9);
        Image in{2, 7, 6, channels, x.to_vector()};
        const auto step = [&](const Image& y, const std::string& number, std::int64_t by) {
          const auto of = [&](const std::string& name) { return net.parameters().find("block." + name).value; };
          return normalised(convolved(y, of("conv" + number + ".weight"), by), of("norm" + number + ".gamma"),
                            of("norm" + number + ".beta"));
        };
        auto y = rectified(step(in, "1", bottleneck ? 1 : stride));
        if (bottleneck) y = rectified(step(y, "2", stride));
        y = step(y, bottleneck ? "3" : "2", 1);
        const bool same = stride == 1 && channels == (bottleneck ? 16 : 4);
        CHECK(net.parameters().size() == static_cast<std::size_t>((bottleneck ? 9 : 6) + (same ? 0 : 3)));
        const auto shortcut = same ? in : step(in, "_shortcut", stride);
        for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] = std::max(0.0, y.values[i] + shortcut.values[i]);
        const auto found = net(x);
        CHECK(found.shape() == Shape{2, 1, y.h, y.w, y.c});
        require_close("block", found, from_vector(found.shape(), y.values, DType::float64), 1e-12);
      }
}

TEST_CASE("encoders: views go through together and come back") {
  using namespace mpigrad::contrastive;
  check_on_ranks(3, "views", [](const Communicator& comm) {
    const auto layout = with_cuts(activation_layout(make_grid(comm, {.sample = 3}), {5, 1, 2, 2, 1}), 0, {0, 3, 3, 5});
    const auto a = global_tensor(layout->global, 1, layout), b = global_tensor(layout->global, 2, layout);
    const auto joined = join_views({a, b});
    require(joined.layout()->global == Shape{10, 1, 2, 2, 1} && joined.dim(0) == 2 * a.dim(0), "[test] {}", joined);
    const auto back = split_views(joined);
    require(*back[1].layout() == *layout, "[test] {}", back[1]);
    require_close("first", back[0], a, 0);
    require_close("second", back[1], b, 0);
  });
  const auto x = zeros({3, 2});
  CHECK(has(error_text([&] { split_views(x); }), "[split_views] the samples of each rank are not 2 views"));
  CHECK(has(error_text([&] { join_views({x, zeros({2, 2})}); }), "[join_views] views have one shape, type and layout"));
}

namespace {

EncoderResult alone(const EncoderCase& encoder, DType dtype) {
  EncoderResult result;
  on_ranks(1, [&](const Communicator& comm) { result = run_encoder(encoder, make_grid(comm, {}), dtype); });
  return result;
}

void check_grids(DType dtype, const std::vector<GridExtents>& grids) {
  for (const auto& encoder : encoder_cases()) {
    const auto expected = alone(encoder, dtype);
    // Fifty layers with random weights amplify rounding errors (rounding the weights in itself changes the gradient 600 times as
    // much): the tolerance is the distance between one rank and float64.
    const double tolerance = dtype == DType::float64 ? 1e-11
                             : encoder.name == "resnet, bottlenecks"
                                 ? 4 * compare(expected, alone(encoder, DType::float64)).gradient
                                 : 1e-5;
    for (const auto& extents : grids)
      check_on_ranks(extents.sample * extents.depth * extents.height * extents.width, encoder.name,
                     [&](const Communicator& comm) {
                       const auto errors = compare(run_encoder(encoder, make_grid(comm, extents), dtype), expected);
                       const auto what = fmt::format("sample={} depth={} height={} width={}", extents.sample, extents.depth,
                                                     extents.height, extents.width);
                       require(errors.gradient < tolerance, "[test] {}: the gradient is {:.1e} off, one parameter's {:.1e}", what,
                               errors.gradient, errors.worst);
                       require(errors.running < tolerance && errors.loss < tolerance,
                               "[test] {}: statistics {:.1e} off, the loss {:.1e}", what, errors.running, errors.loss);
                     });
  }
}

}  // namespace

TEST_CASE("encoders: gradients under contrastive losses are one rank's on every grid, in float64") {
  check_grids(DType::float64, {{.sample = 2, .height = 2},
                               {.sample = 2},
                               {.height = 2},
                               {.sample = 4},
                               {.height = 4},
                               {.width = 3},
                               {.height = 2, .width = 2},
                               {.sample = 2, .height = 3},
                               {.sample = 8}});
}
TEST_CASE("encoders: gradients under contrastive losses are one rank's on every grid, in float32") {
  check_grids(DType::float32, {{.sample = 2, .height = 2}, {.sample = 2}, {.height = 2}, {.sample = 4}, {.height = 4}});
}

TEST_CASE("encoders: statistics of a sample's ranks are those of its samples alone") {
  const ResNetOptions options{
      .depth = 10, .width = 4, .small_images = true, .norm = {.statistics = StatisticsOver::spatial_group}};
  const Shape shape{6, 1, 11, 8, 2};
  check_on_ranks(6, "groups", [&](const Communicator& comm) {
    const auto grid = make_grid(comm, {.sample = 2, .height = 3});
    const auto layout = activation_layout(grid, shape);
    ResNet net(options), alone(options);
    net.build(layout, {.seed = 6, .dtype = DType::float64});
    alone.build(shape, {.seed = 6, .dtype = DType::float64});
    const auto box = layout->box();
    const auto expected = alone(slice(global_tensor(shape, 8), 0, box.begin[0], box.end[0]));
    require_close("features", net(global_tensor(shape, 8, layout)), expected, 1e-12);
  });
}

TEST_CASE("encoders: heads of the papers, prototypes, learned numbers") {
  struct Heads : nn::Module {
    explicit Heads(const ProjectionOptions& options) : head(*this, "head", options) {}
    Tensor operator()(const Tensor& x) override {
      const auto z = head(x);
      prototypes(z), number.value();
      return z;
    }
    ProjectionHead head;
    Prototypes prototypes{*this, "prototypes", 7};
    LearnedNumber number{*this, "number"};
  };
  const auto parameters = [](const ProjectionOptions& options) {
    Heads net(options);
    const auto n = count(net, {4, 10});
    return n - 7 * options.out - 1;
  };
  CHECK(parameters(simclr_head(20, 6)) == 10 * 20 + 2 * 20 + 20 * 6);
  CHECK(parameters(moco_head(20, 6)) == 10 * 20 + 20 + 20 * 6 + 6);
  CHECK(parameters(swav_head(20, 6)) == 10 * 20 + 2 * 20 + 20 * 6 + 6);
  CHECK(parameters(barlow_twins_head(20)) == 10 * 20 + 2 * 20 + 20 * 20 + 2 * 20 + 20 * 20);
  CHECK(parameters(vicreg_head(20)) == parameters(barlow_twins_head(20)));
  CHECK(parameters({.layers = 1, .out = 6}) == 10 * 6);

  Heads net(simclr_head(20, 6));
  net.build(Shape{4, 10}, {.dtype = DType::float64});
  CHECK(net(global_tensor({4, 10}, 3)).shape() == Shape{4, 6});
  // After the last norm each feature has mean 0 and variance 1.
  const auto z = net(global_tensor({40, 10}, 3));
  require_close("mean", mean(z, {0}), zeros({6}, DType::float64), 1e-12);
  require_close("variance", mean(square(z), {0}), ones({6}, DType::float64), 1e-2);
  require_close("prototypes", sum(square(net.prototypes(z)), {1}), ones({7}, DType::float64), 1e-12);
  CHECK(net.number.value().item() == doctest::Approx(std::log(1 / 0.07)));
}

TEST_CASE("encoders: layers that compute in bfloat16 give nearly the same embeddings") {
  struct Net : nn::Module {
    Tensor operator()(const Tensor& x) override { return head(encoder(x)); }
    ResNet encoder{*this, "encoder", {.depth = 10, .width = 8, .small_images = true}};
    ProjectionHead head{*this, "head", {.hidden = 16, .out = 6, .final_norm = true}};
  } half, whole;
  const Shape shape{8, 1, 12, 12, 3};
  half.build(shape, {.compute = DType::bfloat16});
  whole.build(shape);
  const auto x = global_tensor(shape, 5, {}, DType::float32);
  const auto found = half(x), expected = whole(x);
  CHECK(found.dtype() == DType::bfloat16);
  const double error = mean(square(cast(found, DType::float32) - expected), {0, 1}).item();
  CHECK(error < 0.05);  // relative to a variance of 1
  CHECK(error > 0);
}

TEST_CASE("encoders: volumes of odd extents split in depth, 28 planes over 3 ranks") {
  const EncoderCase volume{"encoder3d", {2, 28, 7, 6, 1}};
  const auto expected = alone(volume, DType::float64);
  for (const GridExtents& extents : {GridExtents{.depth = 2}, GridExtents{.depth = 3}, GridExtents{.sample = 2, .depth = 3}})
    check_on_ranks(extents.sample * extents.depth, "28 planes", [&](const Communicator& comm) {
      const auto errors = compare(run_encoder(volume, make_grid(comm, extents), DType::float64), expected);
      require(errors.gradient < 1e-11 && errors.running < 1e-11, "[test] the gradient is {:.1e} off", errors.gradient);
    });
}
