// The oracle of Kahira et al. (2021) beside what they publish: its printed digits, the order of its measured table, and CosmoFlow
// as it was measured.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "examples/studies/plan/figures/published.h"
#include "examples/studies/plan/planner/formulas/oracle.h"
#include "tests/examples/studies/plan/oracle_layers.h"

using namespace mpigrad;
using namespace mpigrad::planner;

TEST_CASE("oracle: the printed digits of data parallelism, from the bytes of weights alone") {
  for (const auto& row : plan::published::paradl::data_parallel) {
    OracleInput in;
    in.strategy = Strategy::data, in.ranks = row.ranks, in.batch = row.batch, in.samples = 1'280'000;
    in.latency = row.latency, in.bandwidth = row.bandwidth, in.weight_bytes = 90'936'064;
    const auto result = evaluate(in);
    CHECK(fmt::format("{:.12g}", result.communication) == fmt::format("{:.12g}", row.communication));
    CHECK(result.communication == term(result, "gradient all-reduce"));
    CHECK(!result.compute.has_value());
    CHECK(!result.memory_bytes.has_value());
    CHECK(result.limit.value == static_cast<double>(row.batch));
    CHECK(!result.limit.exceeded);
    // The same from layers.
    in.weight_bytes.reset(), in.layers = paradl_resnet50();
    CHECK(fmt::format("{:.12g}", evaluate(in).communication) == fmt::format("{:.12g}", row.communication));
    // ceil(D/p) * 3.11950 ms of computing.
    in.times.assign(50, {3.11950e-3 / 100, 3.11950e-3 / 100, 0});
    CHECK(*evaluate(in).compute == exactly(static_cast<double>((1'280'000 + row.ranks - 1) / row.ranks) * 3.11950e-3));
  }
}

TEST_CASE("oracle: the printed digits of filter and channel parallelism") {
  OracleInput in;
  in.ranks = 2, in.batch = 64, in.samples = 1'280'000, in.latency = 9e-6, in.bandwidth = 50e9, in.layers = paradl_resnet50();
  for (const auto strategy : {Strategy::filter, Strategy::channel}) {
    in.strategy = strategy;
    CHECK(fmt::format("{:.12g}", evaluate(in).communication) == "1423.6449216");
  }
}

TEST_CASE("oracle: the order of the measured table") {
  // With the authors' batches, and their seconds of a sample in proportion to floating-point operations, the order comes out as
  // it was measured, at every number of ranks: data+spatial, data+filter, filter of ResNet-50; data+filter, data+spatial, filter
  // of VGG-16. Filter and channel are told apart by measurements alone.
  namespace paper = plan::published::paradl;
  for (const bool is_vgg : {false, true})
    for (const std::int64_t ranks : {32, 64, 256}) {
      OracleInput in;
      in.layers = is_vgg ? paradl_vgg16() : paradl_resnet50();
      double flops = 0;
      for (const auto& each : in.layers) flops += each.forward_flops + each.backward_flops;
      const double rate = (is_vgg ? paper::vgg16_sample_seconds : paper::sample_seconds) / flops;
      for (const auto& each : in.layers) in.times.push_back({each.forward_flops * rate, each.backward_flops * rate, 0});
      in.samples = 1'280'000, in.ranks = ranks;
      in.latency = ranks <= 68 ? 30.31e-6 : 30.98e-6, in.bandwidth = 12.5e9;
      in.group_latency = 9e-6, in.group_bandwidth = 50e9;
      in.halo_latency = paper::halo_latency, in.halo_bandwidth = paper::halo_bandwidth;
      in.groups = ranks / 4, in.group = 4;
      const auto seconds = [&](Strategy strategy) {
        const auto name = name_of(strategy);
        in.strategy = strategy, in.batch = paper::batch_of({is_vgg ? "VGG-16" : "ResNet-50", ranks, name.c_str(), 0, 0});
        const auto result = evaluate(in);
        return *result.compute + result.communication;
      };
      const double spatial = seconds(Strategy::data_spatial), filters = seconds(Strategy::data_filter);
      const double filter = seconds(Strategy::filter);
      CAPTURE(ranks);
      CAPTURE(is_vgg);
      CHECK(seconds(Strategy::channel) == filter);
      CHECK((is_vgg ? filters < spatial : spatial < filters));
      CHECK(std::max(spatial, filters) < filter);
    }
}

TEST_CASE("oracle: CosmoFlow at 256^3 within 25 % of what was measured") {
  // Layers and seconds of a sample, forward and backward, as the authors publish them (paraDL-analysis on GitHub,
  // model/COSMOFLOW.net_256, log/ranking_log/cosmoflow_256.log): 0.2635 s in all. None of it is of the runs that are predicted.
  std::vector<Layer> layers;
  std::vector<LayerTime> times;
  std::int64_t n = 256, channels = 4;
  const auto add = [&](const char* kind, std::int64_t extent, std::int64_t filters, std::int64_t kernel, double weights,
                       double seconds) {
    layers.push_back(layer(kind, {n, n, n, channels}, {extent, extent, extent, filters}, kernel, weights));
    layers.back().kernel = {kernel, kernel, kernel};
    times.push_back({seconds / 3, 2 * seconds / 3, 0});
    n = extent, channels = filters;
  };
  struct Stage {
    std::int64_t filters, kernel, extent;
    double weights, conv, relu, pool;
  };
  for (const auto& s : {Stage{16, 3, 256, 1728, 0.0985259468151, 0.000456138635865, 0.00729821817384},
                        Stage{32, 3, 128, 13824, 0.0985259570921, 0.000114034658966, 0.00364910908692},
                        Stage{64, 3, 64, 55296, 0.0492630196543, 2.85086647416e-05, 0.00182455454346},
                        Stage{128, 3, 16, 221184, 0.00307912371542, 8.90895773174e-07, 0.000114034658966},
                        Stage{256, 2, 8, 262144, 0.000456361359809, 2.22723943294e-07, 5.70173294832e-05},
                        Stage{256, 2, 4, 524288, 0.000114480106853, 2.78404929117e-08, 7.1271661854e-06}}) {
    add("conv", s.extent, s.filters, s.kernel, s.weights, s.conv);
    add("relu", s.extent, s.filters, 0, 0, s.relu);
    add("avg_pool", s.extent / 2, s.filters, 2, 0, s.pool);
  }
  add("conv", 1, 128, 2, 262144, 1.11361971647e-06);
  add("linear", 1, 2048, 1, 262144, 6.68171829881e-07);
  add("linear", 1, 256, 1, 524288, 1.33634365976e-06);
  add("linear", 1, 4, 1, 1024, 2.61004621047e-09);
  // Nodes of four, each with a sample, which split the first two convolutions; the authors' constants. Halos and gathers go
  // through the hosts' memory.
  OracleInput in{.strategy = Strategy::data_spatial, .layers = layers, .times = times, .samples = 1584, .latency = 40.31e-6};
  in.bandwidth = 12.5e9, in.group_latency = 9e-6, in.group_bandwidth = 50e9, in.group = 4, in.spatial_layers = 6;
  in.halo_latency = 3.00011e-3, in.halo_bandwidth = 16e9;
  const auto seconds = [&](std::int64_t nodes) {
    in.ranks = 4 * nodes, in.groups = nodes, in.batch = nodes;
    const auto result = evaluate(in);
    const auto iterations = static_cast<double>(result.iterations);
    // As printed in their log.
    CHECK(term(result, "halo") / iterations == exactly(0.028195184));
    CHECK(term(result, "gradient all-reduce") / iterations ==
          doctest::Approx(nodes == 4 ? 0.00872299344 : 0.0104074344).epsilon(1e-9));
    // They gather what the second convolution gives, of eight times as many elements as its pooling, and leave out the 0.055 s of
    // what follows.
    CHECK(term(result, "gather") / iterations == exactly(2 * 3 * (3.00011e-3 + 8388608.0 / 8e9)));
    CHECK(*result.compute / iterations == doctest::Approx(0.20856940446 / 4 + 0.05494849354).epsilon(1e-6));
    return (*result.compute + result.communication) / iterations;
  };
  CHECK(seconds(4) == doctest::Approx(0.177).epsilon(0.05));  // 0.168
  CHECK(seconds(8) == doctest::Approx(0.212).epsilon(0.25));  // 0.170
}
