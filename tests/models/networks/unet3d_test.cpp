// 3D U-Net: exact parameter counts, and the same training on every grid with every norm, for any cuts of the planes.

#include "models/networks/unet3d.h"

#include <doctest/doctest.h>

#include "models/nn/describe.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "tests/models/networks/network_training.h"
#include "tests/support/gpu.h"
#include "tests/support/progress.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Kind = nn::NormAttributes::Kind;

std::int64_t parameter_count(const UNet3dOptions& options) {
  UNet3d net(options);
  net.build(Shape{1, 32, 32, 32, 1}, {.device = DeviceKind::dry});
  return net.parameters().elements();
}

void check_grids(const UNetRun& run, const std::vector<GridExtents>& list) {
  const auto one = losses_on_threads(run, {});
  CHECK(one.back() != one.front());
  for (const auto& g : list) {
    INFO("sample " << g.sample << ", depth " << g.depth << ", height " << g.height << ", width " << g.width);
    note_progress("U-Net on another grid");
    CHECK(largest_difference(losses_on_threads(run, g), one) < 1e-10);
  }
}

const std::vector<GridExtents> several{{.depth = 2},
                                       {.sample = 2, .depth = 2},
                                       {.depth = 3, .height = 2},
                                       {.depth = 2, .height = 2, .width = 2},
                                       {.depth = 8},
                                       {.sample = 3},
                                       {.depth = 3, .height = 3, .width = 2}};

}  // namespace

TEST_CASE("U-Net has exactly the published numbers of parameters") {
  CHECK(parameter_count({.variant = UNet3dVariant::lbann}) == 19070560);
  CHECK(parameter_count({.variant = UNet3dVariant::mlperf}) == 31190243);
}

TEST_CASE("U-Net, LBANN: training is the same on every grid") {
  check_grids({.options = small_unet(UNet3dVariant::lbann, Kind::batch)}, several);
  check_grids({.options = small_unet(UNet3dVariant::lbann, Kind::none)}, {{.depth = 4}});
}

TEST_CASE("U-Net, MLPerf: training is the same on every grid") {
  check_grids({.options = small_unet(UNet3dVariant::mlperf, Kind::instance)}, several);
  for (const auto kind : {Kind::group, Kind::layer, Kind::batch})
    check_grids({.options = small_unet(UNet3dVariant::mlperf, kind)}, {{.depth = 2, .width = 2}, {.sample = 2, .height = 3}});
}

TEST_CASE("U-Net: training with circular padding is the same on every grid") {
  auto options = small_unet(UNet3dVariant::lbann, Kind::batch);
  options.padding_mode = PaddingMode::circular;
  check_grids({.options = options}, {{.depth = 3, .width = 2}, {.sample = 2, .height = 2}});
}

TEST_CASE("U-Net: blocks that are computed again give the same numbers") {
  auto options = small_unet(UNet3dVariant::mlperf, Kind::instance);
  const auto kept = losses_on_threads(UNetRun{.options = options}, {});
  options.recompute = true;
  CHECK(losses_on_threads(UNetRun{.options = options}, {}) == kept);
  CHECK(largest_difference(losses_on_threads(UNetRun{.options = options}, {.depth = 2, .height = 2}), kept) < 1e-10);
}

TEST_CASE("gpu: a U-Net has the CPU's losses on every grid") {
  if (no_cudnn("gpu: a U-Net has the CPU's losses on every grid")) return;
  for (const bool recompute : {false, true}) {
    UNetRun run{.options = small_unet(UNet3dVariant::mlperf, Kind::instance), .extents = {6, 5, 6}, .steps = 2};
    run.options.recompute = recompute;
    const auto expected = losses_on_threads(run, {});
    const UseDevice gpu(DeviceKind::cuda);
    for (const auto& grid : std::vector<GridExtents>{{}, {.depth = 2}, {.sample = 2, .height = 2}})
      CHECK(largest_difference(losses_on_threads(run, grid), expected) < 1e-9);
  }
}

TEST_CASE("U-Net: running statistics change once a step, however its blocks are computed") {
  const auto statistics = [](bool recompute) {
    UNet3d net({.variant = UNet3dVariant::lbann, .filters = {2, 4, 4}, .recompute = recompute});
    net.build(Shape{1, 6, 5, 6, 1}, {.seed = 1, .dtype = DType::float64});
    Tape tape(net);
    (void)tape.gradient(sum(square(net(constant(random_normal({1, 6, 5, 6, 1}, {1, 2}, 0, 1, DType::float64))))));
    std::vector<double> all;
    for (const auto& [name, value] : net.buffers())
      for (const double x : value.to_vector()) all.push_back(x);
    return all;
  };
  CHECK(statistics(true) == statistics(false));
}

TEST_CASE("recompute: a U-Net whose blocks are computed again needs less memory") {
  const auto net_of = [](UNet3dVariant variant, bool recompute) {
    return UNet3d({.variant = variant, .filters = {8, 16, 16, 32}, .recompute = recompute});
  };
  const auto peak = [&](bool recompute) {
    auto net = net_of(UNet3dVariant::mlperf, recompute);
    return describe(net, {2, 32, 32, 32, 1}).peak_bytes;
  };
  CHECK(peak(true) < peak(false));
  // The peak of LBANN's variant is in the widest block, with all activations in memory either way: but less is kept for the
  // replay.
  const auto kept = [&](bool recompute) {
    auto net = net_of(UNet3dVariant::lbann, recompute);
    const auto x = constant(random_normal({1, 16, 16, 16, 1}, {1, 2}));
    net.build(x.shape());
    const auto before = memory_statistics(DeviceKind::cpu).current_bytes;
    Tape tape;
    const auto y = net(x);
    return memory_statistics(DeviceKind::cpu).current_bytes - before;
  };
  CHECK(kept(true) < kept(false));
}

TEST_CASE_ON_DEVICES("recompute: what was dropped is there again when it is read", no_gpu) {
  const UseDevice use(device);
  const auto x = random_normal({2, 4, 3, 4, 5}, {1, 2}, 0, 1, DType::float64),
             gamma = random_normal({5}, {1, 3}, 1, 0.1, DType::float64), beta = random_normal({5}, {1, 4}, 0, 1, DType::float64);
  const auto now = [&] { return memory_statistics(device).current_bytes; };
  const auto norm = [&](const Tensor& t) { return group_norm(t, gamma, beta, {.activation = Activation::relu}); };
  // Gradients of sum(square(y) y); y = f(x) is dropped after square().
  const auto run = [&](const std::function<Tensor(const Tensor&)>& f, bool drops, bool inside) {
    const auto product = [=](const Tensor& t) {
      const auto y = f(t);
      const auto values = y.to_vector();
      const auto z = square(y);
      const auto before = now();
      if (drops) {
        drop_until_read(y);
        CHECK(now() == before - y.storage()->bytes());
        CHECK(y.to_vector() == values);
        CHECK(now() == before);
        drop_until_read(y);
      }
      return z * y;
    };
    Tape tape;
    const auto g = tape.gradient(sum(inside ? recompute(product, x) : product(x)), {x, gamma, beta});
    std::vector<std::vector<double>> result;
    for (const auto& each : g) result.push_back(each.to_vector());
    return result;
  };
  const auto joined = [&](const Tensor& t) { return join(norm(t), t, 4); };
  for (const bool inside : {false, true}) {
    CHECK(run(norm, true, inside) == run(norm, false, inside));
    CHECK(run(joined, true, inside) == run(joined, false, inside));
  }
  // Without a recording tape it cannot be computed again.
  const auto y = norm(x);
  const auto before = now();
  drop_until_read(y);
  CHECK(now() == before);
}
