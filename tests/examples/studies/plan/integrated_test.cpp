// The equations of Gholami et al. (2018) against numbers worked out by hand, and the paper's best grids for AlexNet.

#include "examples/studies/plan/planner/formulas/integrated.h"

#include <doctest/doctest.h>

#include <cmath>

#include "examples/studies/plan/figures/published.h"
#include "framework/base/error.h"

using namespace mpigrad;
using namespace mpigrad::planner;

namespace {

Layer conv(std::int64_t n, std::int64_t channels, std::int64_t kernel, std::int64_t outputs, std::int64_t filters,
           std::int64_t groups) {
  Layer layer;
  layer.kind = "conv";
  layer.in_extents = {1, n, n}, layer.in_channels = channels;
  layer.out_extents = {1, outputs, outputs}, layer.out_channels = filters;
  layer.kernel = {1, kernel, kernel};
  layer.inputs = static_cast<double>(n * n * channels), layer.outputs = static_cast<double>(outputs * outputs * filters);
  layer.weights = static_cast<double>(kernel * kernel * (channels / groups) * filters + filters);
  return layer;
}
Layer linear(std::int64_t in, std::int64_t out) {
  Layer layer;
  layer.kind = "linear";
  layer.in_channels = in, layer.out_channels = out;
  layer.inputs = static_cast<double>(in), layer.outputs = static_cast<double>(out);
  layer.weights = static_cast<double>(in * out + out);
  return layer;
}

// The network of two groups: 60,965,224 weights.
std::vector<Layer> alexnet() {
  return {conv(227, 3, 11, 55, 96, 1),  conv(27, 96, 5, 27, 256, 2), conv(13, 256, 3, 13, 384, 1), conv(13, 384, 3, 13, 384, 2),
          conv(13, 384, 3, 13, 256, 2), linear(9216, 4096),          linear(4096, 4096),           linear(4096, 1000)};
}

IntegratedInput of_alexnet(std::int64_t ranks, double bandwidth = 6.0 * (1 << 30)) {
  IntegratedInput in;
  in.layers = alexnet(), in.ranks = ranks, in.batch = 2048, in.samples = 1'200'000, in.latency = 2e-6, in.bandwidth = bandwidth;
  return in;
}

// A 3 x 3 convolution of 4 x 6 places, two channels in and three out with 60 weights, and a product of 8 by 5 with 45: d = 72, 5.
std::vector<Layer> small() {
  auto first = conv(1, 2, 3, 1, 3, 1);
  first.in_extents = first.out_extents = {1, 4, 6}, first.inputs = 48, first.outputs = 72, first.weights = 60;
  return {first, linear(8, 5)};
}
constexpr ElementLink wire{.latency = 0.25, .seconds_per_element = 1};

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-13); }

}  // namespace

TEST_CASE("integrated: Equations 3 to 9 by hand, on 6 ranks (3 messages of a collective) with a batch of 12") {
  const auto layers = small();
  CHECK(model_seconds(layers, 6, 12, wire) == exactly(2314.5));  // 3 (3/4 + 12 * 5/6 * 72) + 3 (3/4 + 12 * 5/6 * 5)
  CHECK(model_seconds(layers, 6, 12, wire, 2) == exactly(1543));
  CHECK(batch_seconds(layers, 6, wire) == exactly(178));  // 2 (3/4 + 5/6 * 60) + 2 (3/4 + 5/6 * 45)
  CHECK(batch_by_model(layers[0], 12) == exactly(120.0 / (36 * 72)));
  CHECK(redistribution_seconds(layers[1], 6, 12, wire) == exactly(50.75));
  // Rows of 6 * 2 inputs and 6 * 3 outputs; the product has none.
  CHECK(domain_seconds(layers, 6, 12, wire) == exactly(538.5));  // 1/4 + 12 * 12 + 1/4 + 12 * 18 + 178
  // Pr = 2, Pc = 3: one message along Pr, two along Pc.
  // Products: 3 (1/4 + 12 * 1/2 * 5/3) + 2 (2/4 + 2/3 * 45/2); convolutions: 3 (1/4 + 12 * 1/2 * 72/3) + 2 (2/4 + 2/3 * 60/2).
  CHECK(model_batch_seconds({layers[1]}, 2, 3, 12, wire) == exactly(61.75));
  CHECK(model_batch_seconds({layers[1]}, 2, 3, 12, wire, 2) == exactly(51.5));
  CHECK(model_batch_seconds(layers, 2, 3, 12, wire) == exactly(61.75 + 473.75));
  // Halos of 12/3 samples, 1/2 + 4 * (12 + 18), and 2 (3/4 + 5/6 * 60).
  CHECK(integrated_seconds({layers[1]}, {layers[0]}, 2, 3, 12, wire) == exactly(61.75 + 120.5 + 101.5));
  // Ends of the grids are the pure schemes.
  CHECK(model_batch_seconds(layers, 6, 1, 12, wire) == exactly(model_seconds(layers, 6, 12, wire)));
  CHECK(model_batch_seconds(layers, 1, 6, 12, wire) == exactly(batch_seconds(layers, 6, wire)));
  CHECK(integrated_seconds({}, layers, 1, 6, 12, wire) == exactly(batch_seconds(layers, 6, wire)));
}

TEST_CASE("integrated: a window of one place exchanges nothing") {
  auto layers = small();
  layers[0].kernel = {1, 1, 1};
  CHECK(domain_seconds(layers, 6, 12, wire) == exactly(178));
  // A volume is split along its depth: planes of 4 * 6 places.
  layers[0].kernel = {3, 3, 3}, layers[0].in_extents[0] = layers[0].out_extents[0] = 7;
  CHECK(domain_seconds(layers, 6, 12, wire) == exactly(178 + 0.5 + 12 * (48 + 72)));
}

TEST_CASE("integrated: Equation 5's crossover") {
  // Without bias 2 k^2 X_C / (3 Y_H Y_W): of a 3 x 3 convolution of 384 channels on 13 x 13 places 2 * 9 * 384 / (3 * 169)
  // = 13.63: batch parallelism moves less from a batch of 14 on.
  auto layer = conv(13, 384, 3, 13, 384, 1);
  layer.weights -= 384;
  CHECK(crossover_batch(layer) == exactly(2.0 * 9 * 384 / (3 * 169)));
  CHECK(batch_by_model(layer, 13) > 1);
  CHECK(batch_by_model(layer, 14) < 1);
  // The same from Equations 3 and 4 without latency.
  const ElementLink free_messages{.latency = 0, .seconds_per_element = 1};
  CHECK(batch_seconds({layer}, 8, free_messages) > model_seconds({layer}, 8, 13, free_messages));
  CHECK(batch_seconds({layer}, 8, free_messages) < model_seconds({layer}, 8, 14, free_messages));
  // Of a product of 4096 by 4096 with bias: 2 * 4097/3.
  CHECK(crossover_batch(linear(4096, 4096)) == exactly(2.0 * 4097 / 3));
}

TEST_CASE("integrated: AlexNet's best grids and communication speed-ups, Figure 7") {
  const double here[] = {2.66, 4.20, 6.72, 10.16};  // with 6 GiB per second
  double weights = 0;
  for (const auto& layer : alexnet()) weights += layer.weights;
  CHECK(weights == 60'965'224);
  for (std::size_t r = 0; r < std::size(here); ++r) {
    const auto& row = plan::published::gholami::figure_7[r];
    CAPTURE(row.ranks);
    const auto result = search_grids(of_alexnet(row.ranks));
    CHECK(result.iterations == 586);
    CHECK(result.best.pr == row.pr);
    CHECK(result.best.pc == row.pc);
    CHECK(std::abs(result.speedup / row.communication_speedup - 1) < 0.1);
    CHECK(std::abs(result.speedup - here[r]) < 0.01);
    CHECK(result.grids.front().communication == exactly(result.batch_only));  // Pr = 1
    // With decimal gigabytes the grids are the same.
    const auto decimal = search_grids(of_alexnet(row.ranks, 6e9));
    CHECK(decimal.best.pr == row.pr);
    CHECK(std::abs(decimal.speedup / result.speedup - 1) < 0.005);
  }
}

TEST_CASE("integrated: every grid is tried, and the ways of convolutions differ as the equations do") {
  auto in = of_alexnet(12);
  auto result = search_grids(in);
  std::vector<std::int64_t> rows;
  for (const auto& grid : result.grids) {
    rows.push_back(grid.pr);
    CHECK(grid.pr * grid.pc == 12);
    CHECK(result.best.communication <= grid.communication);
  }
  CHECK(rows == std::vector<std::int64_t>{1, 2, 3, 4, 6, 12});
  const auto batch = result;
  in.convolutions = Convolutions::same;
  const auto same = search_grids(in);
  in.convolutions = Convolutions::domain;
  const auto domain = search_grids(in);
  for (std::size_t g = 1; g < rows.size(); ++g) {
    // Activations of convolutions are large: to share their weights costs most, halos more than nothing.
    CHECK(same.grids[g].communication > domain.grids[g].communication);
    CHECK(domain.grids[g].communication > batch.grids[g].communication);
  }
  CHECK(same.grids[0].communication == exactly(batch.grids[0].communication));
  // Reducing to those that need it saves a third of what products send along Pr.
  in.convolutions = Convolutions::batch, in.factor = adjoint_factor;
  const auto fewer = search_grids(in);
  CHECK(fewer.speedup > batch.speedup);
  CHECK(fewer.batch_only == batch.batch_only);
}

TEST_CASE("integrated: more ranks than samples need split images") {
  auto in = of_alexnet(512);
  in.batch = 128;
  CHECK_THROWS_AS(search_grids(in), Error);
  in.convolutions = Convolutions::domain;
  const auto result = search_grids(in);
  CHECK(result.best.pc <= 128);
  CHECK(result.best.pr <= 13);  // rows of the last convolutions
  for (const auto& grid : result.grids) CHECK(grid.possible == (grid.pc <= 128 && grid.pr <= 13));
  in.ranks = 4096;
  CHECK_THROWS_AS(search_grids(in), Error);  // 8 x 512 has too few samples, 32 x 128 too few rows
}

TEST_CASE("integrated: what cannot be is refused") {
  for (const auto& spoil : std::vector<void (*)(IntegratedInput&)>{
           [](auto& in) { in.ranks = 0; }, [](auto& in) { in.batch = 0; }, [](auto& in) { in.samples = 0; },
           [](auto& in) { in.bandwidth = 0; }, [](auto& in) { in.latency = -1; }, [](auto& in) { in.factor = 0; },
           [](auto& in) { in.layers.clear(); }}) {
    auto in = of_alexnet(8);
    CHECK_NOTHROW(search_grids(in));
    spoil(in);
    CHECK_THROWS_AS(search_grids(in), Error);
  }
  // Nothing to say on one rank.
  CHECK(search_grids(of_alexnet(1)).speedup == 1);
}
