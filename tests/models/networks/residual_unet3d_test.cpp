// Residual encoder U-Net: parameter counts, scores of coarse levels and their loss, and the same training on every grid, with
// kernels and strides that differ by axis and for any cuts of the planes.

#include "models/networks/residual_unet3d.h"

#include <doctest/doctest.h>

#include <cmath>

#include "comm/collectives/collectives.h"
#include "framework/optim/optimizer.h"
#include "models/losses/segmentation.h"
#include "models/nn/describe.h"
#include "models/nn/pipeline.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/models/networks/network_training.h"
#include "tests/support/progress.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

std::int64_t parameter_count(const ResidualUNet3dOptions& options, std::int64_t channels) {
  ResidualUNet3d net(options);
  net.build(Shape{1, 32, 32, 32, channels}, {.device = DeviceKind::dry});
  return net.parameters().elements();
}

// Four levels with a first kernel and strides of 1 along the depth.
ResidualUNet3dOptions small() {
  return {
      .filters = {3, 4, 5, 5}, .strides = {1, {1, 2, 2}, 2, {2, 1, 2}}, .kernels = {{1, 3, 3}, 3, 3, 3}, .blocks = {1, 2, 1, 1}};
}

Tensor loss_of(ResidualUNet3d& net, const Tensor& x, const Tensor& labels) {
  const auto scores = net(x);
  const auto loss = [](const Tensor& p, const Tensor& t) {
    return segmentation::dice_cross_entropy_loss(p, t, {.background = false, .whole_batch = true});
  };
  return deep_supervision_loss(loss, scores, net.take_coarse_scores(), labels);
}

std::vector<double> losses(const ResidualUNet3dOptions& options, const GridExtents& g, const Shape& e) {
  std::vector<double> result;
  on_ranks(ranks_of(g), [&](const Communicator& world) {
    const auto grid = make_grid(world, g);
    const auto layout = activation_layout(grid, {2, e[0], e[1], e[2], 2});
    const auto labels_layout = split_layout(grid, {2, e[0], e[1], e[2]}, {0, 1, 2, 3});
    ResidualUNet3d net(options);
    net.build(layout, {.seed = 1, .dtype = DType::float64});
    SGD sgd(net, {.learning_rate = 0.05, .momentum = 0.9, .nesterov = true});
    for (int step = 0; step < 3; ++step) {
      const Philox random{7, static_cast<std::uint64_t>(step % 2)};
      const auto x = constant(random_normal(layout->global, random, 0, 1, DType::float64, layout));
      const auto uniform = random_uniform(labels_layout->global, random.child(1), 0, 3, DType::float64, labels_layout);
      const auto labels = constant(cast(uniform, DType::int32));
      Tape tape(net);
      const auto share = loss_of(net, x, labels);
      sgd.step(tape.gradient(share));
      const auto sum = total(share, world);
      if (world.rank() == 0) result.push_back(sum);
    }
  });
  return result;
}

}  // namespace

TEST_CASE("residual U-Net has the published number of parameters, without biases before norms and the unused lowest head") {
  // PyTorch's ResidualEncoderUNet of dynamic-network-architectures 0.4.4: 102,350,575 with 13,056 such biases and 963; 4,274,280
  // with 1,600 and 260.
  CHECK(parameter_count({}, 1) == 102336556);
  CHECK(parameter_count({.filters = {32, 64, 128}, .strides = {1, {1, 2, 2}, 2}, .kernels = {{1, 3, 3}, 3, 3}, .classes = 4},
                        2) == 4272420);
}

TEST_CASE("residual U-Net: training is the same on every grid") {
  const Shape extents{7, 10, 13};
  const auto one = losses(small(), {}, extents);
  CHECK(one.back() != one.front());
  const std::vector<GridExtents> grids{
      {.depth = 2}, {.height = 3}, {.depth = 2, .width = 2}, {.sample = 2, .width = 3}, {.depth = 2, .height = 2, .width = 2},
      {.depth = 7}};
  for (const auto& g : grids) {
    INFO("sample " << g.sample << ", depth " << g.depth << ", height " << g.height << ", width " << g.width);
    note_progress("residual U-Net on another grid");
    CHECK(largest_difference(losses(small(), g, extents), one) < 1e-10);
  }
  auto options = small();
  options.recompute = true;
  CHECK(largest_difference(losses(options, {.height = 2, .width = 2}, extents), one) < 1e-10);
}

TEST_CASE("residual U-Net: channels and filters split over ranks give the numbers of one rank") {
  const Shape extents{4, 6, 5};
  auto options = small();
  options.filters = {4, 4, 6, 6};
  const auto one = losses(options, {}, extents);
  for (const auto& grid : {GridExtents{.channel = 2}, GridExtents{.filter = 2}, GridExtents{.depth = 2, .channel = 2}})
    CHECK(largest_difference(losses(options, grid, extents), one) < 1e-10);
}

TEST_CASE("residual U-Net: stages of a pipeline give the numbers of one rank, coarse scores included") {
  const Shape e{4, 6, 5};
  const auto run = [&](int stages) {
    std::vector<double> result;
    on_ranks(stages, [&](const Communicator& world) {
      const auto pipeline = nn::Pipeline::make(world, {.grid = {.stage = stages}});
      const auto layout = activation_layout(pipeline->grid(), {1, e[0], e[1], e[2], 2});
      const auto labels_layout = split_layout(pipeline->grid(), {1, e[0], e[1], e[2]}, {0, 1, 2, 3});
      ResidualUNet3d net(small());
      net.build(layout, {.seed = 1, .dtype = DType::float64, .pipeline = pipeline});
      SGD sgd(net, {.learning_rate = 0.05});
      for (std::uint64_t step = 0; step < 3; ++step) {
        const Philox random{7, step};
        const auto x = constant(random_normal(layout->global, random, 0, 1, DType::float64, layout));
        const auto labels = constant(
            cast(random_uniform(labels_layout->global, random.child(1), 0, 3, DType::float64, labels_layout), DType::int32));
        Tensor share;
        const auto done = pipeline->gradient(
            net, 1, [&](std::int64_t) { return share = loss_of(net, pipeline->input(x), pipeline->target(labels)); });
        sgd.step(done.gradients);
        const auto sum = pipeline->totals({share})[0];
        if (world.rank() == 0) result.push_back(sum);
      }
    });
    return result;
  };
  const auto one = run(1);
  CHECK(largest_difference(run(2), one) < 1e-10);
  CHECK(largest_difference(run(3), one) < 1e-10);
}

TEST_CASE("residual U-Net: coarse scores exist in training, with the extents of their levels") {
  ResidualUNet3d net(small());
  net.build(Shape{1, 5, 6, 7, 1}, {.seed = 1});
  const auto x = constant(random_normal({1, 5, 6, 7, 1}, {1, 2}));
  const auto scores = net(x);
  const auto coarse = net.take_coarse_scores();
  REQUIRE(coarse.size() == 1);  // three levels on the way up, the coarsest without scores
  CHECK(coarse[0].scores.shape() == Shape{1, 5, 3, 4, 3});
  CHECK(coarse[0].stride == Triple{1, 2, 2});
  CHECK(net.take_coarse_scores().empty());
  net.train(false);
  CHECK(net(x).to_vector() == scores.to_vector());
  CHECK(net.take_coarse_scores().empty());
  net.train(true);
  auto plain = small();
  plain.deep_supervision = false;
  ResidualUNet3d other(plain);
  other.build(Shape{1, 5, 6, 7, 1}, {.seed = 1});
  CHECK(other(x).shape() == scores.shape());
  CHECK(other.take_coarse_scores().empty());
}

TEST_CASE("deep supervision: weights halve from level to level, labels are those of the first cells") {
  const auto labels = from_vector({1, 1, 2, 3}, {1., 2., 3., 4., 5., -1.}, DType::int32);
  // A loss that returns the sum of labels, so that the weights show.
  const auto loss = [](const Tensor& p, const Tensor& t) { return sum(p) * 0 + sum(cast(t, DType::float64)); };
  const auto zeros_of = [](const Shape& shape) { return constant(zeros(shape, DType::float64)); };
  const auto value = deep_supervision_loss(
      loss, zeros_of({1, 1, 2, 3, 2}), {{zeros_of({1, 1, 2, 2, 2}), {1, 1, 2}}, {zeros_of({1, 1, 1, 1, 2}), {1, 2, 4}}}, labels);
  // 14, then 1 + 3 + 4 - 1, then 1
  CHECK(value.item() == doctest::Approx((14 + 0.5 * 7 + 0.25 * 1) / 1.75));
  CHECK(deep_supervision_loss(loss, zeros_of({1, 1, 2, 3, 2}), {}, labels).item() == doctest::Approx(14));
}

TEST_CASE("deep supervision: micro-batches with ignored labels have the batch's loss") {
  const auto loss = [](const Tensor& scores, const Tensor& labels) { return cross_entropy(scores, labels, {.ignore_index = 9}); };
  const auto fine = constant(random_normal({2, 2, 2, 2, 3}, Philox(1), 0, 1, DType::float64));
  const auto coarse = constant(random_normal({2, 1, 1, 2, 3}, Philox(2), 0, 1, DType::float64));
  const Triple stride{2, 2, 1};
  const auto labels = from_vector({2, 2, 2, 2}, {0., 9., 2., 9., 9., 1., 1., 0., 2., 1., 9., 9., 0., 0., 9., 9.}, DType::int32);
  const auto part = [](const Tensor& x, std::int64_t i) { return slice(x, 0, i, i + 1); };
  const double whole = deep_supervision_loss(loss, fine, {{coarse, stride}}, labels).item();
  double sum = 0, apart = 0;
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto own = [&] {
      return deep_supervision_loss(loss, part(fine, i), {{part(coarse, i), stride}}, part(labels, i)).item();
    };
    apart += own() / 2;
    const StepLabels step({part(labels, 0), part(labels, 1)});
    sum += own() / 2;
  }
  CHECK(sum == doctest::Approx(whole).epsilon(1e-12));
  CHECK(std::abs(apart - whole) > 1e-3);
}

TEST_CASE("residual U-Net: options that do not fit each other are refused") {
  const auto message = [](const ResidualUNet3dOptions& options) {
    try {
      ResidualUNet3d net(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message({.filters = {4}}).find("at least two") != std::string::npos);
  CHECK(message({.filters = {4, 4}, .strides = {1, 2, 2}}).find("2 levels have 3 strides") != std::string::npos);
  CHECK(message({.filters = {4, 4}, .strides = {2, 2}}).find("finest level is 1") != std::string::npos);
  CHECK(message({.filters = {4, 4}, .kernels = {{1, 2, 3}, 3}}).find("must be odd") != std::string::npos);
  CHECK(message({.filters = {4, 4}, .blocks = {1, 0}}).find("at least one block") != std::string::npos);
}

TEST_CASE("residual U-Net: its blocks computed again need less memory") {
  const auto peak = [](bool recompute) {
    ResidualUNet3d net({.filters = {8, 16, 32}, .recompute = recompute});
    return describe(net, {2, 32, 32, 32, 1}).peak_bytes;
  };
  CHECK(peak(true) < peak(false));
}
