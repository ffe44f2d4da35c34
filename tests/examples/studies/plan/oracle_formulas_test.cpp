// The oracle of Kahira et al. (2021): every formula against numbers worked out by hand for a small network, its diagnoses, and
// what it refuses.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/studies/plan/planner/formulas/oracle.h"
#include "framework/base/error.h"
#include "tests/examples/studies/plan/oracle_layers.h"

using namespace mpigrad;
using namespace mpigrad::planner;

namespace {

// 1,698 weights; x + y of its layers: 448, 320, 192, 138.
std::vector<Layer> small() {
  return {layer("conv", {1, 8, 8, 3}, {1, 8, 8, 4}, 3, 112), layer("max_pool", {1, 8, 8, 4}, {1, 4, 4, 4}, 2, 0),
          layer("conv", {1, 4, 4, 4}, {1, 4, 4, 8}, 3, 296), layer("linear", {1, 1, 1, 128}, {1, 1, 1, 10}, 1, 1290)};
}

// One element per second, half a second per message; 3 iterations of 8 samples, of 20.
OracleInput of_small(Strategy strategy, std::int64_t ranks) {
  OracleInput in;
  in.strategy = strategy, in.ranks = ranks, in.layers = small();
  in.samples = 20, in.batch = 8, in.latency = 0.5, in.bandwidth = 4;
  in.groups = in.group = 2;
  // Forward and backward together 3, 1, 6 and 1: 11 s per sample; updates: 1 s.
  in.times = {{1, 2, 0.1}, {0.5, 0.5, 0}, {2, 4, 0.2}, {0.25, 0.75, 0.7}};
  return in;
}

std::vector<std::string> names(const std::vector<Diagnosis>& found) {
  std::vector<std::string> result;
  for (const auto& each : found) result.push_back(std::string(name_of(each.kind)) + ": " + each.name);
  return result;
}

}  // namespace

TEST_CASE("oracle: serial and data, by hand") {
  const auto serial = evaluate(of_small(Strategy::serial, 1));
  CHECK(*serial.compute == exactly(223));  // 20 * 11 + 3 * 1
  CHECK(serial.communication == 0);
  CHECK(*serial.memory_bytes == exactly(83856));  // 2 * 4 (8 * 1098 + 1698)
  const auto data = evaluate(of_small(Strategy::data, 4));
  CHECK(*data.compute == exactly(58));  // 20/4 * 11 + 3 * 1
  CHECK(*data.update == exactly(3));
  CHECK(data.communication == exactly(7650));   // 2 * 3 * 3 (0.5 + 1698/4)
  CHECK(*data.memory_bytes == exactly(31152));  // 8 (2 * 1098 + 1698)
  auto many = of_small(Strategy::data, 9);      // for 8 samples
  CHECK(evaluate(many).limit.exceeded);
  CHECK(*evaluate(many).compute == exactly(36));  // ceil(20/9) = 3 samples of 11 s, 3 iterations
  many.weight_bytes = 9 * 36;                     // 9 elements: 2 * 3 * 8 (0.5 + 9)
  CHECK(evaluate(many).communication == exactly(456));
}

TEST_CASE("oracle: filter and channel, by hand") {
  const auto result = evaluate(of_small(Strategy::filter, 4));
  CHECK(*result.compute == exactly(55.75));       // 20/4 * 11 + 3/4 * 1
  CHECK(result.communication == exactly(20763));  // 3 * 3 * 3 ((0.5 + 8 * 256/4) + (0.5 + 8 * 128/4)): without the last product
  CHECK(*result.memory_bytes == exactly(73668));  // 8 (8 * 1098 + 1698/4)
  CHECK(result.limit.name == "min F_l");
  CHECK(result.limit.value == 4);
  CHECK(!result.limit.exceeded);
  const auto channel = evaluate(of_small(Strategy::channel, 4));
  CHECK(channel.communication == result.communication);
  CHECK(channel.limit.name == "min C_l");
  CHECK(channel.limit.value == 3);
  CHECK(channel.limit.exceeded);
}

TEST_CASE("oracle: data+filter, by hand") {
  const auto result = evaluate(of_small(Strategy::data_filter, 4));
  CHECK(*result.compute == exactly(56.5));                      // 20/2/2 * 11 + 3/2 * 1
  CHECK(term(result, "layer collectives") == exactly(6921));    // 3 * 3 * 1 (512.5 + 256.5)
  CHECK(term(result, "gradient all-reduce") == exactly(2550));  // 2 * 3 * 1 (0.5 + 1698/4)
  CHECK(result.communication == exactly(9471));
  CHECK(*result.memory_bytes == exactly(41928));  // 8 (8 * 1098/2 + 1698/2)
  CHECK(result.limit.name == "B*min F_l");
  CHECK(result.limit.value == 32);
  CHECK(!result.limit.exceeded);
  auto wide = of_small(Strategy::data_filter, 8);  // fewer than 32, but a layer has but 4 filters for 8 ranks
  wide.groups = 1, wide.group = 8;
  CHECK(evaluate(wide).limit.exceeded);
}

TEST_CASE("oracle: data+spatial, by hand") {
  // Two groups of 4 samples; rows are split in the first three layers. Halos go at 4/(2 * 2) = 1 byte per second: rows of
  // 3 * 8 elements are 384 bytes of 4 samples, of 4 * 4 elements 256; the pooling of 2 x 2 has none.
  auto in = of_small(Strategy::data_spatial, 4);
  const auto result = evaluate(in);
  CHECK(*result.compute == exactly(60));                         // 10 ((3 + 1 + 6)/2 + 1)
  CHECK(term(result, "halo") == exactly(7692));                  // 3 (4 (0.5 + 384) + 4 (0.5 + 256))
  CHECK(term(result, "gather") == exactly(3075));                // 2 * 3 * 1 (0.5 + 4 * 128 * 4/2 bytes at 2 per second)
  CHECK(term(result, "gradient all-reduce") == exactly(25476));  // 6 (0.5 + 6792/2/4) + 6 (0.5 + 6792/2/1)
  CHECK(*result.memory_bytes == exactly(33360));                 // 2 (4 * 4 (960/2 + 138) + 6792)
  CHECK(result.limit.value == 64);                               // 8 samples of 8 rows
  // Two layers are spatial: the convolution that follows is computed by one rank.
  in.spatial_layers = 2;
  const auto fewer = evaluate(in);
  CHECK(*fewer.compute == exactly(90));           // 10 ((3 + 1)/2 + 6 + 1)
  CHECK(term(fewer, "halo") == exactly(4614));    // 3 * 4 (0.5 + 384)
  CHECK(term(fewer, "gather") == exactly(1539));  // 6 (0.5 + 4 * 64 * 4/2/2)
  // Only the link between groups slower by half: only the sum between groups takes longer.
  in.spatial_layers = 0, in.group_bandwidth = 4, in.group_latency = 0.5, in.bandwidth = 2;
  CHECK(term(evaluate(in), "gradient all-reduce") == exactly(25476 + 6 * 3396));
  CHECK(term(evaluate(in), "halo") == exactly(7692));
}

TEST_CASE("oracle: spatial, by hand") {
  // A row or column of the convolutions' inputs and outputs: 3 * 8 + 4 * 8 and 4 * 4 + 8 * 4 elements.
  auto in = of_small(Strategy::spatial, 4);
  const auto result = evaluate(in);
  CHECK(result.grid == std::array<std::int64_t, 3>{1, 1, 4});  // 834 against 836
  CHECK(term(result, "halo") == exactly(5004));                // 2 * 3 ((1 + 8 * 56) + (1 + 8 * 48))
  CHECK(term(result, "gradient all-reduce") == exactly(7650));
  CHECK(*result.compute == exactly(58));
  CHECK(*result.memory_bytes == exactly(31152));
  CHECK(result.limit.name == "min_l(W_l*H_l)");
  CHECK(result.limit.value == 16);
  in.grid = {1, 2, 2};                                 // half rows and half columns, twice as many messages
  CHECK(term(evaluate(in), "halo") == exactly(5016));  // 2 * 3 (2 (1 + 8 * 28) + 2 (1 + 8 * 24))
  in.latency = 0, in.grid = {};
  CHECK(evaluate(in).grid == std::array<std::int64_t, 3>{1, 1, 4});  // the same cost without messages' own: the first
  in.ranks = 16;
  CHECK(evaluate(in).grid == std::array<std::int64_t, 3>{1, 4, 4});  // all others have more ranks than rows of 4
  CHECK(!evaluate(in).limit.exceeded);
  in.grid = {1, 2, 8};
  CHECK(evaluate(in).limit.exceeded);
}

TEST_CASE("oracle: a pipeline, by hand") {
  auto in = of_small(Strategy::pipeline, 2);
  in.segments = 4;
  const auto result = evaluate(in);
  CHECK(result.group_ends == std::vector<std::int64_t>{2, 4});  // 4 and 7 seconds; 3 and 8, 10 and 1 are worse
  CHECK(result.imbalance == exactly(14.0 / 11));
  CHECK(*result.compute == exactly(175.9));       // 20 (2 + 4 - 1)/4 (2.25 + 4.75) + 0.9
  CHECK(result.communication == exactly(3084));   // 2 * 3 (2 + 4 - 2)(0.5 + 8/4 * 64)
  CHECK(*result.memory_bytes == exactly(50048));  // 8 (8 (448 + 320) + 112)
  CHECK(result.limit.name == "G");
  CHECK(result.limit.value == 4);
  // Without times, by operations: of 3 * 2 * (112 * 64, 0, 296 * 16, 1290) the first is the larger half.
  in.times.clear();
  CHECK(evaluate(in).group_ends == std::vector<std::int64_t>{1, 4});
  CHECK(!evaluate(in).compute.has_value());
  in.ranks = 5;
  CHECK(evaluate(in).limit.exceeded);
  CHECK(evaluate(in).group_ends == std::vector<std::int64_t>{1, 2, 3, 4});
}

TEST_CASE("oracle: groups of a pipeline are as even as any") {
  // Against all ways of cutting eight layers into four.
  OracleInput in;
  in.strategy = Strategy::pipeline, in.ranks = 4;
  for (const double work : {5, 1, 1, 7, 2, 2, 9, 3}) {
    in.layers.push_back(linear(2, 2));
    in.times.push_back({work, 0, 0});
  }
  double least = 1e9;
  for (std::size_t a = 1; a < 6; ++a)
    for (std::size_t b = a + 1; b < 7; ++b)
      for (std::size_t c = b + 1; c < 8; ++c) {
        double worst = 0;
        for (const auto& [begin, end] :
             {std::pair{std::size_t{0}, a}, std::pair{a, b}, std::pair{b, c}, std::pair{c, std::size_t{8}}}) {
          double sum = 0;
          for (auto l = begin; l < end; ++l) sum += in.times[l].forward;
          worst = std::max(worst, sum);
        }
        least = std::min(least, worst);
      }
  CHECK(evaluate(in).imbalance == exactly(least / 7.5));
}

TEST_CASE("oracle: norms have weights but no activations of their own") {
  auto in = of_small(Strategy::data, 4);
  in.times.clear();
  in.layers.push_back(layer("batch_norm", {1, 4, 4, 8}, {1, 4, 4, 8}, 1, 16));
  CHECK(*evaluate(in).memory_bytes == exactly(31152 + 8 * 16));
  in.strategy = Strategy::pipeline;
  CHECK(evaluate(in).limit.value == 4);
}

TEST_CASE("oracle: diagnoses, each with its number") {
  auto in = of_small(Strategy::data, 4);
  auto found = diagnose(in, evaluate(in));
  CHECK(names(found) == std::vector<std::string>{"limitation: gradient exchange", "bottleneck: memory redundancy"});
  CHECK(found[0].number == exactly(7650.0 / 7708));
  CHECK(found[1].number == exactly(1 - 83856.0 / (4 * 31152)));
  CHECK(found[0].sentence == "sums of gradients over ranks take 7650 s, 99.2 % of the epoch");

  in = of_small(Strategy::channel, 4);
  found = diagnose(in, evaluate(in));
  CHECK(names(found) == std::vector<std::string>{"limitation: layer-wise collectives", "bottleneck: input and staging",
                                                 "bottleneck: memory redundancy", "bottleneck: computation redundancy",
                                                 "limitation: number of ranks"});
  CHECK(found[1].number == exactly(20 * 192 / (20763 + 55.75)));
  CHECK(found.back().number == 3);

  in = of_small(Strategy::spatial, 4);  // a nanosecond per element, and nothing else takes time
  in.bandwidth = 4e9, in.latency = 0, in.times.clear();
  found = diagnose(in, evaluate(in));
  CHECK(names(found) == std::vector<std::string>{"limitation: gradient exchange", "bottleneck: halo messages",
                                                 "bottleneck: input and staging", "bottleneck: memory redundancy",
                                                 "bottleneck: computation redundancy"});
  CHECK(found[1].number == exactly(4992.0 / (4992 + 7641)));
  CHECK(found[1].sentence == "planes from neighbours take 4.992e-06 s, 39.5 % of the epoch's communication");
  CHECK(found[2].number == exactly(3840.0 / (4992 + 7641)));

  in = of_small(Strategy::pipeline, 2);
  in.segments = 4, in.memory = 50048 / 0.9;
  found = diagnose(in, evaluate(in));
  CHECK(names(found) == std::vector<std::string>{"bottleneck: pipeline messages", "bottleneck: memory fragmentation",
                                                 "limitation: workload balance"});
  CHECK(found[1].number == exactly(0.9));
  CHECK(found[2].number == exactly(14.0 / 11));
  in.memory = 50048 / 0.8;
  CHECK(diagnose(in, evaluate(in)).size() == 2);
  in = of_small(Strategy::data, 512);
  in.samples = in.batch = 512, in.bandwidth = 1e12, in.latency = 0;
  for (auto& time : in.times) time.update = 10;
  found = diagnose(in, evaluate(in));
  CHECK(names(found) == std::vector<std::string>{"bottleneck: network congestion", "bottleneck: memory redundancy",
                                                 "limitation: weight update", "limitation: number of ranks"});
  CHECK(found[2].number == exactly(40.0 / 51));
}

TEST_CASE("oracle: names of strategies") {
  for (const char* name : {"serial", "data", "spatial", "pipeline", "filter", "channel", "data+filter", "data+spatial"}) {
    CHECK(name_of(strategy_named(name).value()) == name);
  }
  CHECK(!strategy_named("model").has_value());
}

TEST_CASE("oracle: what cannot be is refused") {
  const auto refused = [](const std::function<void(OracleInput&)>& spoil, Strategy strategy = Strategy::data_filter) {
    auto in = of_small(strategy, 4);
    spoil(in);
    CHECK_THROWS_AS(evaluate(in), Error);
  };
  refused([](auto& in) { in.ranks = 0; });
  refused([](auto& in) { in.batch = 0; });
  refused([](auto& in) { in.samples = -1; });
  refused([](auto& in) { in.bandwidth = 0; });
  refused([](auto& in) { in.latency = -1; });
  refused([](auto& in) { in.groups = 3; });
  refused([](auto& in) { in.times.pop_back(); });
  refused([](auto& in) { in.layers.clear(), in.times.clear(); });
  refused([](auto& in) { in.layers = {layer("max_pool", {1, 4, 4, 4}, {1, 2, 2, 4}, 2, 0)}, in.times.clear(); });
  refused([](auto&) {}, Strategy::serial);
  refused([](auto& in) { in.grid = {1, 3, 1}; }, Strategy::spatial);
  refused([](auto& in) { in.layers = {linear(4, 4)}, in.times.clear(); }, Strategy::spatial);
  refused([](auto& in) { in.segments = 0; }, Strategy::pipeline);
  refused([](auto& in) { in.spatial_layers = 5; }, Strategy::data_spatial);
}
