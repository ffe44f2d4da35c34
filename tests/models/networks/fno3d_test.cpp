// Fourier neural operators: parameters, the same training on every grid and in pipelines, other extents, costs.

#include "models/networks/fno3d.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "models/nn/describe.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "tests/models/nn/pipelined.h"
#include "tests/support/distributed.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

std::int64_t parameter_count(const FNO3dOptions& options, const Shape& input) {
  FNO3d net(options);
  net.build(input, {.device = DeviceKind::dry});
  return net.parameters().elements();
}

SplitNetwork small_fno(double channel_mlp) {
  const FNO3dOptions options{.modes = {4, 3, 3}, .width = 4, .layers = 2, .out = 2, .channel_mlp = channel_mlp};
  return {"FNO3d", [=] { return std::make_unique<FNO3d>(options); }, {2, 6, 5, 6, 3}, {2, 6, 5, 6, 2}};
}

Trained trained(SplitTraining& training) {
  const auto optimizer = adam(*training.net);
  training.train(*optimizer, 0, 2, 0.5);
  return everything_of(*training.net, optimizer.get());
}

}  // namespace

TEST_CASE("FNO3d has as many parameters as neuraloperator's FNO") {
  // sum(p.numel() * (2 if p.is_complex() else 1)) of FNO(n_modes, in_channels, 1, width)
  CHECK(parameter_count({.modes = {1, 16, 9}, .width = 64}, {1, 1, 32, 32, 1}) == 4769473);
  CHECK(parameter_count({.modes = {1, 1, 9}, .width = 32}, {1, 1, 1, 64, 2}) == 86881);
  CHECK(parameter_count({.modes = {8, 6, 5}, .width = 12, .lifting = 0, .channel_mlp = 0}, {1, 8, 8, 8, 1}) == 277501);
}

TEST_CASE("FNO3d starts with neuraloperator's distributions") {
  FNO3d net({.modes = {1, 16, 9}, .width = 64, .layers = 1});
  net.build(Shape{1, 1, 32, 32, 1}, {.seed = 1});
  // The root mean square, and the largest element, of a parameter.
  const auto of = [&](const char* name) {
    double square = 0, largest = 0;
    const auto values = net.parameters().find(name).value.to_vector();
    for (const double v : values) square += v * v, largest = std::max(largest, std::abs(v));
    return std::pair{std::sqrt(square / static_cast<double>(values.size())), largest};
  };
  CHECK(of("spectral1.weight").first == doctest::Approx(std::sqrt(1 / 128.0)).epsilon(0.01));
  CHECK(of("spectral1.bias").first == doctest::Approx(std::sqrt(2 / 128.0)).epsilon(0.4));
  for (const auto& [name, inputs] : {std::pair{"lifting1.weight", 3.0}, {"lifting1.bias", 3.0}, {"mlp1b.weight", 32.0}}) {
    const auto [mean, largest] = of(name);
    CHECK(mean == doctest::Approx(1 / std::sqrt(3 * inputs)).epsilon(0.15));
    CHECK(largest <= 1 / std::sqrt(inputs));
    CHECK(largest > 0.95 / std::sqrt(inputs));
  }
  CHECK(of("gate1.weight").first == 1);
}

TEST_CASE("FNO3d: training is the same on every grid") {
  for (const double channel_mlp : {0.5, 0.0}) {
    const auto network = small_fno(channel_mlp);
    SplitTraining one(network, nullptr);
    const auto expected = trained(one);
    for (const auto& [extents, sharded] : std::vector<std::pair<GridExtents, bool>>{{{.depth = 2}, false},
                                                                                    {{.sample = 2, .depth = 3}, false},
                                                                                    {{.depth = 2, .height = 2}, true},
                                                                                    {{.width = 2}, false},
                                                                                    {{.depth = 2, .channel = 2}, false},
                                                                                    {{.channel = 2, .filter = 2}, false}}) {
      const auto what = fmt::format("{}x{}x{}x{}x{}x{}{}, MLP {}", extents.sample, extents.depth, extents.height, extents.width,
                                    extents.channel, extents.filter, sharded ? ", sharded" : "", channel_mlp);
      check_on_ranks(ranks_of(extents), what, [&, extents = extents, sharded = sharded](const Communicator& comm) {
        SplitTraining mine(network, make_grid(comm, extents), nn::BuildOptions{.sharded_weights = sharded});
        require_trained(what, trained(mine), expected);
      });
    }
  }
}

TEST_CASE("FNO3d in pipelines equals one rank") {
  const auto network = small_fno(0.5);
  const auto expected = trained_alone(network, 2);
  check_on_ranks(4, "stages", [&](const Communicator& comm) {
    Pipelined mine(comm, network, {.grid = {.depth = 2, .stage = 2}});
    mine.train(2);
    require_trained("stages", state_of(*mine.net, *mine.optimizer), expected);
  });
}

TEST_CASE("FNO3d: other extents, coordinates, refusals, cost") {
  FNO3d net({.modes = {1, 5, 3}, .width = 6, .layers = 1, .channel_mlp = 0});
  net.build(Shape{1, 1, 8, 8, 1}, {.dtype = DType::float64});
  const auto field = [](std::int64_t n) {
    std::vector<double> values;
    for (std::int64_t h = 0; h < n; ++h)
      for (std::int64_t w = 0; w < n; ++w)
        values.push_back(std::cos(2 * std::numbers::pi * static_cast<double>(h + w) / static_cast<double>(n)));
    return from_vector({1, 1, n, n, 1}, values, DType::float64);
  };
  // Both are the operator's result, up to errors of discretisation, which fall as the extents grow.
  const auto difference = [&](std::int64_t n) {
    const Tensor coarse = net(field(n)), fine = net(field(2 * n));
    const Tensor d = slice(fine, {0, 0, 0, 0, 0}, fine.shape(), {1, 1, 2, 2, 1}) - coarse;
    return std::sqrt(dot(d, d).item() / dot(coarse, coarse).item());
  };
  CHECK(difference(64) < 0.6 * difference(16));
  CHECK(difference(64) > 0);

  FNO3d plain({.modes = {1, 5, 3}, .width = 6, .layers = 1, .coordinates = false});
  plain.build(Shape{1, 1, 8, 8, 1}, {.dtype = DType::float64});
  const Tensor x = global_tensor({1, 1, 8, 8, 1}, 1);
  // Without coordinates a shifted input has the shifted result; with them it does not.
  const auto shifted = [](const Tensor& y) { return concatenate({slice(y, 2, 3, 8), slice(y, 2, 0, 3)}, 2); };
  CHECK_NOTHROW(require_close("shifted", plain(shifted(x)), shifted(plain(x))));
  CHECK_THROWS(require_close("shifted", net(shifted(x)), shifted(net(x))));

  CHECK(has(error_text([&] { net(global_tensor({1, 8, 8, 1}, 1)); }), "[fno3d] needs [N, D, H, W, C]"));
  CHECK(has(error_text([&] { net(global_tensor({1, 1, 4, 8, 1}, 1)); }), "[spectral1] 5 frequencies are kept along dimension 2"));
  CHECK(has(error_text([] { FNO3d({.width = 0}); }), "[fno3d] width, layers and out are at least 1"));
  CHECK(has(error_text([] { FNO3d({.projection = 0}); }), "projection is positive"));

  FNO3d described({.modes = {4, 4, 3}, .width = 8, .layers = 1});
  const auto table = describe(described, {2, 8, 8, 8, 1}, {.grid = {.depth = 2}});
  const auto spectral = std::find_if(table.layers.begin(), table.layers.end(),
                                     [](const LayerDescription& layer) { return layer.kind == "spectral_conv"; });
  REQUIRE(spectral != table.layers.end());
  CHECK(spectral->parameters == 4 * 4 * 3 * 8 * 8 * 2 + 8);
  CHECK(spectral->halo_bytes == 2 * 2 * 8 * 4 * (4 / 2) * 3 * std::int64_t{sizeof(float) * 2});  // both ways
  CHECK(spectral->gflop > 0);
}

TEST_CASE("gpu: FNO3d has the CPU's result and gradients") {
  if (no_gpu("FNO3d on a GPU")) return;
  const Shape shape{1, 3, 4, 6, 1};
  const auto run = [&](DeviceKind device) {
    FNO3d net({.modes = {3, 3, 2}, .width = 4, .layers = 2});
    net.build(shape, {.device = device});
    const UseDevice here(device);
    Tape tape(net);
    const auto y = net(constant(to(global_tensor(shape, 1, {}, DType::float32), device)));
    auto result = tape.gradient(sum(square(y))).tensors();
    result.push_back(y);
    for (auto& x : result) x = to(x, DeviceKind::cpu);
    return result;
  };
  const auto expected = run(DeviceKind::cpu), found = run(DeviceKind::cuda);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK_NOTHROW(require_close("on a GPU", found[i], expected[i], 1e-3));
}
