// Steps as the planner sees them: what ranks say to each other is what they say on threads, and times add up.

#include "examples/studies/plan/planner/step_time.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "examples/studies/plan/planner/machine/measure.h"
#include "examples/studies/plan/planner/machine/op_times.h"
#include "examples/studies/plan/planner/search/search.h"
#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/resnet.h"
#include "models/networks/unet3d.h"
#include "models/simulation/fields.h"
#include "ops/elementwise/elementwise.h"
#include "ops/fft/fft.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/support/ranks.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using planner::Machine;

namespace {

std::unique_ptr<Optimizer> adam(Parameters& parameters) { return std::make_unique<Adam>(parameters); }

// One of a thousand operations a second, and so on: times can be read off.
Machine slow_machine(int node = 64) {
  Machine machine{.name = "slow"};
  machine.device = {.name = "slow", .memory = 1e9, .memory_bandwidth = 1e12, .flops = {{"float32", 1e3}}};
  machine.device.efficiency = {{"conv", 1}, {"linear", 1}, {"other", 1}, {"memory", 1}};
  machine.levels = {{"node", node, 1, 1e3, 1}, {"network", 4096, 10, 1e2, 2}};
  return machine;
}

struct Scheme {
  const char* name;
  DescribeOptions options;
};

std::vector<Scheme> schemes() {
  const nn::LayerSplit channels(ChannelSplit::channels, "channel", true);
  return {{"data", {.grid = {.sample = 2}}},
          {"spatial", {.grid = {.depth = 2, .height = 2}}},
          {"data and spatial", {.grid = {.sample = 2, .depth = 2}}},
          {"filter", {.grid = {.channel = 2}}},
          {"channel", {.grid = {.channel = 2}, .split = channels}},
          {"filter and channel at once", {.grid = {.channel = 2, .filter = 2}, .split = channels}},
          {"data and filter", {.grid = {.sample = 2, .channel = 2}}},
          {"sharded weights", {.grid = {.sample = 2}, .sharded_weights = true}},
          {"layers with grids of their own", {.grid = {.depth = 2}, .grids = {{"conv5-7", {.sample = 2}}}}},
          {"filters of some layers, channels of others",
           {.grid = {.channel = 2}, .grids = {{"conv3-4", {.channel = 2}, channels}, {"linear1", {.channel = 2}, channels}}}}};
}

// What all ranks send, by the count of tests/support/traffic.h.
double predicted_bytes(const std::function<std::unique_ptr<nn::Module>()>& make, const Shape& input,
                       const DescribeOptions& options) {
  double bytes = 0;
  const int ranks = ranks_of(options.grid);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto net = make();
    for (const auto& event : trace_step(*net, input, options, rank, ranks, {.events = true}).events)
      for (const auto& call : event.calls) {
        const auto n = static_cast<double>(call.bytes), p = static_cast<double>(call.ranks->size());
        if (call.what == DryRecord::What::send) bytes += n;
        if (call.kind == CollectiveKind::allreduce) bytes += 2 * n * (p - 1) / p;
        if (call.kind == CollectiveKind::allgather) bytes += n * (p - 1);
        if (call.kind == CollectiveKind::reduce_scatter) bytes += n * (p - 1) / p;
      }
  }
  return bytes;
}

double sent_bytes(const std::function<std::unique_ptr<nn::Module>()>& make, const Shape& input, const DescribeOptions& options) {
  Traffic traffic{.type = DType::float32};
  check_on_ranks(ranks_of(options.grid), "a step", [&](const Communicator& world) {
    const Communicator counted(std::make_shared<CountingTransport>(world.transport().duplicate(), traffic));
    const auto grid = make_grid(counted, options.grid);
    const auto layout = input_layout(grid, input);
    nn::BuildOptions build{.split = options.split, .sharded_weights = options.sharded_weights};
    for (const auto& own : options.grids) build.grids.push_back({own.layers, make_grid(counted, own.grid), own.split});
    const auto net = make();
    net->build(layout, build);
    world.transport().barrier();
    if (world.rank() == 0)
      traffic.messages = 0, traffic.gathered = 0, traffic.scattered = 0, traffic.reduced = 0, traffic.other = 0;
    world.transport().barrier();
    const auto x = constant(random_normal(input, {.key = 1}, 0, 1, DType::float32, layout));
    Tape tape(*net);
    (void)tape.gradient(sum((*net)(x)));
  });
  CHECK(traffic.other == 0);
  return 4 * static_cast<double>(traffic.all());
}

}  // namespace

TEST_CASE("planner: what ranks send in a step is what the trace of it says, in every strategy") {
  const auto cosmoflow = [] { return std::make_unique<CosmoFlow>(CosmoFlowOptions{.batch_norm = true, .filters = 2}); };
  const auto unet = [] {
    return std::make_unique<UNet3d>(UNet3dOptions{.variant = UNet3dVariant::lbann, .filters = {4, 4, 8, 8}});
  };
  const auto mlperf = [] {
    return std::make_unique<CosmoFlow>(CosmoFlowOptions{.variant = CosmoFlowVariant::mlperf, .filters = 4});
  };
  const auto mlperf_unet = [] { return std::make_unique<UNet3d>(UNet3dOptions{.filters = {4, 4, 8, 8, 8, 8}}); };
  const auto resnet = [] { return std::make_unique<ResNet>(ResNetOptions{.depth = 50, .classes = 4, .width = 8}); };
  for (const auto& scheme : schemes()) {
    CAPTURE(std::string(scheme.name));
    const double predicted = predicted_bytes(cosmoflow, {2, 16, 16, 16, 4}, scheme.options);
    CHECK(predicted > 0);
    CHECK(predicted == sent_bytes(cosmoflow, {2, 16, 16, 16, 4}, scheme.options));
    if (!scheme.options.grids.empty()) continue;
    CHECK(predicted_bytes(unet, {2, 8, 8, 8, 1}, scheme.options) == sent_bytes(unet, {2, 8, 8, 8, 1}, scheme.options));
    const auto& g = scheme.options.grid;
    CHECK(predicted_bytes(mlperf, {2, 32, 32, 32, 4}, scheme.options) == sent_bytes(mlperf, {2, 32, 32, 32, 4}, scheme.options));
    CHECK(predicted_bytes(mlperf_unet, {2, 32, 32, 32, 1}, scheme.options) ==
          sent_bytes(mlperf_unet, {2, 32, 32, 32, 1}, scheme.options));
    // Images have no depth.
    auto flat = scheme.options;
    if (g.depth > 1) flat.grid.depth = 1, flat.grid.width = g.depth;
    CHECK(predicted_bytes(resnet, {2, 1, 32, 32, 3}, flat) == sent_bytes(resnet, {2, 1, 32, 32, 3}, flat));
  }
}

TEST_CASE("planner: the parts of a step's time add up, and layers' to forward and backward") {
  for (const auto& scheme : schemes()) {
    CAPTURE(std::string(scheme.name));
    CosmoFlow net({.filters = 2});
    auto options = scheme.options;
    options.optimizer = adam;
    const Shape input{2, 16, 16, 16, 4};
    const auto step = trace_step(net, input, options, 0, ranks_of(options.grid), {.events = true});
    for (const bool overlaps : {false, true}) {
      auto machine = slow_machine();
      machine.overlaps = overlaps;
      const auto t = time_step(step, 0, machine);
      CHECK(t.total == doctest::Approx(t.forward + t.backward + t.update + t.halos + t.redistribution + t.collectives));
      double forward = 0, backward = 0;
      for (const auto& layer : t.layers) forward += layer.forward, backward += layer.backward;
      CHECK(forward <= t.forward * (1 + 1e-9));
      CHECK(forward >= 0.9 * t.forward);
      CHECK(backward <= t.backward * (1 + 1e-9));
      CHECK(backward >= 0.9 * t.backward);
      if (!overlaps) CHECK(t.hidden == 0);
      CHECK(t.update > 0);
    }
  }
}

TEST_CASE("planner: a step of one convolution on a machine whose times can be read off") {
  struct One : nn::Module {
    nn::Conv3d conv{*this, "conv", {.out = 2, .kernel = 3, .padding = 1, .bias = false}};
    Tensor operator()(const Tensor& x) override { return conv(x); }
  } net;
  const Shape input{1, 4, 4, 4, 2};
  const DescribeOptions split{.grid = {.depth = 2}};
  const auto step = trace_step(net, input, split, 0, 2, {.events = true});
  auto machine = slow_machine(2);
  machine.overlaps = false;
  const auto t = time_step(step, 0, machine);
  // A plane of 4 x 4 places and two channels is 128 bytes each way: a second, and 0.128 of one. The input is a constant, so
  // that nothing goes home.
  CHECK(t.halos == doctest::Approx(1.128));
  // 2 * 2 * 4 * 4 outputs of 27 * 2 products each, times two, and weight gradients as many; but for sums of a few numbers.
  CHECK(step.events.size() > 3);
  double flops = 0;
  for (const auto& event : step.events) flops += event.flops;
  CHECK(t.forward + t.backward == doctest::Approx(flops / 1e3).epsilon(0.05));
  CHECK(flops == doctest::Approx(2 * 2.0 * 64 * 27 * 2).epsilon(0.05));
  // Gradients of 108 weights, 432 bytes between two ranks: 1 + 0.432 seconds by recursive doubling, the best.
  CHECK(t.gradients == doctest::Approx(1.432));
  // Between two nodes, whose two ranks share a link.
  auto apart = slow_machine(1);
  apart.overlaps = false;
  CHECK(time_step(step, 0, apart).halos == doctest::Approx(10 + 128 * 2 / 1e2));
}

TEST_CASE("planner: a neighbour across nodes is what all wait for") {
  auto machine = slow_machine(4);
  // Ranks 3 and 4 are neighbours along depth, and on two nodes.
  CHECK(planner::farthest_level(machine, {.depth = 8}, 0, 1) == 1);
  CHECK(planner::farthest_level(machine, {.depth = 4}, 0, 1) == 0);
  CHECK(planner::farthest_level(machine, {.sample = 8, .depth = 4}, 1, 2) == 0);
  // Along width they are on one node, along depth never.
  CHECK(planner::farthest_level(machine, {.depth = 2, .width = 4}, 0, 1) == 0);
  CHECK(planner::farthest_level(machine, {.depth = 2, .width = 4}, 0, 4) == 1);
  // Groups of three ranks begin anywhere on a node of four.
  CHECK(planner::farthest_level(machine, {.sample = 4, .depth = 3}, 0, 1) == 1);
}

TEST_CASE("planner: a last node that is not full does not slow a reduction over all ranks") {
  Machine machine{.name = "six a node"};
  machine.levels = {{"node", 6, 1e-6, 50e9, 1}, {"network", 30000, 1e-6, 24e9, 6}};
  const auto seconds = [&](int first, int count, int stride = 1) {
    auto ranks = std::make_shared<std::vector<int>>();
    for (int i = 0; i < count; ++i) ranks->push_back(first + i * stride);
    return collective_seconds({.kind = CollectiveKind::allreduce, .bytes = 1 << 28, .ranks = ranks}, machine, 6);
  };
  CHECK(seconds(0, 128) == doctest::Approx(seconds(0, 126)).epsilon(0.01));
  CHECK(seconds(0, 1024) == doctest::Approx(seconds(0, 1020)).epsilon(0.01));
  CHECK(seconds(0, 128) < seconds(0, 1024));
  // The next group begins on the node where this one begins or ends: half of the link. One rank of each node: a sixth.
  CHECK(seconds(2, 126) == doctest::Approx(2 * seconds(0, 126)).epsilon(0.01));
  CHECK(seconds(0, 126, 6) == doctest::Approx(6 * seconds(0, 126)).epsilon(0.01));
}

TEST_CASE("planner: measured ops count as measured, their neighbours are scaled, others have a roof") {
  auto machine = slow_machine();
  StepEvent conv{.op = "conv",
                 .in = {{Shape{1, 8, 8, 8, 4}}, {Shape{8, 3, 3, 3, 4}}},
                 .out = {{Shape{1, 8, 8, 8, 8}}},
                 .flops = 1e6,
                 .bytes = 1e4,
                 .calls = {}};
  CHECK(planner::signature(conv.in) == "float32[1,8,8,8,4] float32[8,3,3,3,4]");
  CHECK(planner::OpTimes(machine, 1).of(conv).seconds == doctest::Approx(1e3));
  CHECK(planner::OpTimes(machine, 1).of(conv).estimated);
  machine.ops = {{"conv", planner::signature(conv.in), planner::signature(conv.out), 1, 1e6, 1e4, 2e3}};
  const planner::OpTimes times(machine, 1);
  CHECK(times.of(conv).seconds == 2e3);
  CHECK(times.of(conv).measured);
  // Twice the roof, as the only one that is known.
  auto larger = conv;
  larger.in[0].shape = {1, 16, 8, 8, 4}, larger.out[0].shape = {1, 16, 8, 8, 8}, larger.flops = 2e6;
  CHECK(times.of(larger).seconds == doctest::Approx(4e3));
  CHECK(!times.of(larger).measured);
  CHECK(!times.of(larger).estimated);
  // Where nothing was measured with two ranks at once, with one is next to it.
  CHECK(planner::OpTimes(machine, 2).of(conv).seconds == 2e3);
  machine.ops.push_back(machine.ops[0]), machine.ops[1].ranks = 2, machine.ops[1].seconds = 3e3;
  CHECK(planner::OpTimes(machine, 2).of(conv).seconds == 3e3);
}

TEST_CASE("planner: what measured ops reach of the peaks, kind by kind") {
  const planner::Device device{
      .name = "chip", .memory = 1, .memory_bandwidth = 1e9, .flops = {{"float32", 1e10}, {"bfloat16", 1e12}}, .launch = 1};
  const std::string single = "float32[8,8]", half = "bfloat16[8,8]";
  // Of launches at once: 3 s of 10 in both convolutions together, nothing below them, faster than the peak, no peak at all.
  const auto found = planner::reached(device, {{"conv", single, single, 1, 1e10, 0, 5},
                                               {"conv_weight", single, single, 1, 2e10, 0, 7},
                                               {"conv", half, half, 1, 1e12, 0, 3},
                                               {"matmul", single, single, 1, 4e10, 0, 2},
                                               {"matmul", "float64[8,8]", "float64[8,8]", 1, 1e10, 0, 2},
                                               {"add", single, single, 1, 1, 2e9, 5}});
  CHECK(found.size() == 4);
  CHECK(found.at("conv") == doctest::Approx(0.3));
  CHECK(found.at("conv_bfloat16") == doctest::Approx(0.5));
  CHECK(found.at("linear") == 1);
  CHECK(found.at("memory") == doctest::Approx(0.5));
  CHECK(planner::reached(device, {}).empty());
}

TEST_CASE("planner: ops are timed one by one, and each signature once") {
  CosmoFlow net({.filters = 2});
  const Shape input{1, 16, 16, 16, 4};
  on_ranks(1, [&](const Communicator& world) {
    planner::OpMeasurement measurement(world, {.seconds = 1e-4, .repeats = 1});
    const auto step = trace_step(net, input, {}, 0, 1, {.events = true, .timer = measurement.timer()});
    CHECK(measurement.left_out().empty());
    const auto again = trace_step(net, input, {}, 0, 1, {.events = true, .timer = measurement.timer()});
    CHECK(step.events.size() == again.events.size());
    auto machine = slow_machine();
    machine.ops = measurement.ops();
    std::set<std::string> known;
    for (const auto& op : machine.ops) CHECK(known.insert(op.op + op.in + op.out).second);
    const auto t = time_step(step, 0, machine, {.node_ranks = 1});
    CHECK(t.measured_share == doctest::Approx(1));
    double sum = 0;
    for (const auto& event : step.events) sum += event.seconds > 0 ? event.seconds : 0;
    CHECK(t.total == doctest::Approx(sum));
  });
}

#ifndef MPIGRAD_WITHOUT_FFTW
TEST_CASE("planner: Fourier transforms have their redistributions, and a time for each number of dimensions") {
  struct Filter : nn::Module {
    nn::Conv3d conv{*this, "conv", {.out = 2, .kernel = 3, .padding = 1, .bias = false}};
    Tensor operator()(const Tensor& x) override { return fields::poisson(conv(x)); }
  };
  const auto make = [] { return std::make_unique<Filter>(); };
  const Shape input{1, 6, 5, 8, 3};
  const DescribeOptions split{.grid = {.depth = 2}};
  // Depth becomes whole and height split, and back, in both passes. Complex numbers of 8 bytes: 3 planes of each rank, 5 of 8 / 2
  // + 1 waves along width, 2 channels; ranks get 3 and 2 of 5 lines of height.
  const double sends = 3 * 2 * 5 * 2 * 8, receives = 3 * 3 * 5 * 2 * 8;
  CHECK(predicted_bytes(make, input, split) == sent_bytes(make, input, split) + 4 * (sends + receives));
  auto machine = slow_machine();
  machine.overlaps = false;
  Filter net;
  const auto step = trace_step(net, input, split, 0, 2, {.events = true});
  CHECK(time_step(step, 0, machine).redistribution == doctest::Approx(4 * (1 + receives / 1e3)));
  std::map<std::string_view, int> count;
  for (const auto& event : step.events) {
    ++count[event.op];
    if (has(std::string(event.op), "fft")) CHECK(event.flops > 0);
  }
  CHECK((count["redistribute"] == 4 && count["rfft"] == 2 && count["irfft"] == 2 && count["fft"] == 8));

  struct Transforms : nn::Module {
    Tensor operator()(const Tensor& x) override { return square(abs(local::fft(local::fft(x, {1, 2, 3}), {1}))); }
  } transforms;
  on_ranks(1, [&](const Communicator& world) {
    planner::OpMeasurement measurement(world, {.seconds = 1e-4, .repeats = 1});
    const auto traced = trace_step(transforms, {1, 16, 16, 16, 2}, {}, 0, 1, {.events = true, .timer = measurement.timer()});
    CHECK(measurement.left_out().empty());
    machine.ops = measurement.ops();
    const auto of_fft = [](const auto& op) { return op.op == "fft"; };
    CHECK(std::count_if(machine.ops.begin(), machine.ops.end(), of_fft) == 2);
    double sum = 0;
    for (const auto& event : traced.events) sum += event.seconds > 0 ? event.seconds : 0;
    const auto t = time_step(traced, 0, machine, {.node_ranks = 1});
    CHECK(t.measured_share == doctest::Approx(1));
    CHECK(t.total == doctest::Approx(sum));
    // Of another size, from the nearest transforms of the same type.
    const planner::OpTimes times(machine, 1);
    for (const auto& event : trace_step(transforms, {1, 16, 16, 8, 2}, {}, 0, 1, {.events = true}).events)
      if (event.op == "fft") CHECK_FALSE(times.of(event).estimated);
  });
}
#endif

TEST_CASE("planner: lines through measured times, some of them outliers") {
  std::vector<std::pair<double, double>> points;
  for (double bytes = 8; bytes < 1e7; bytes *= 4) points.emplace_back(bytes, 5e-6 + bytes / 1e9);
  const auto exact = planner::fit_link(points);
  CHECK(exact.latency == doctest::Approx(5e-6));
  CHECK(1 / exact.seconds_per_byte == doctest::Approx(1e9));
  CHECK(exact.residual < 1e-9);
  points[3].second *= 50;
  CHECK(planner::fit_link(points).latency == doctest::Approx(5e-6).epsilon(0.1));
  CHECK(has(error_text([&] { planner::fit_link({{1, 1}}); }), "two sizes"));
}
