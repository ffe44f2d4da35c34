// Simulated steps against the sum that time_step() makes, what late ranks and shared links cost, and traces.

#include "examples/studies/plan/planner/simulation/simulate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "examples/studies/plan/planner/step_time.h"
#include "framework/base/error.h"
#include "framework/optim/optimizer.h"
#include "models/networks/cosmoflow.h"
#include "models/nn/describe.h"

using namespace mpigrad;
using namespace mpigrad::planner;

namespace {

using Do = StepProgram::Item::Do;

// So many ranks on one level, or on nodes of four that share an adapter.
Machine machine_of(int ranks, bool overlaps, bool nodes = false) {
  Machine machine;
  machine.name = "test";
  machine.device = {.name = "chip", .memory = 1e12, .memory_bandwidth = 1e12, .launch = 1e-6};
  machine.device.flops["float32"] = 1e13;
  if (nodes) machine.levels.push_back({"node", 4, 2e-6, 1e11, 1});
  machine.levels.push_back({"net", ranks, 5e-6, 1e10, nodes ? 4.0 : 1.0});
  machine.overlaps = overlaps;
  return machine;
}

StepTrace trace_of(const GridExtents& grid, int rank, std::int64_t extent = 64, nn::LayerSplit split = ChannelSplit::filters) {
  CosmoFlow net({.variant = CosmoFlowVariant::mlperf});
  const Shape batch{2 * grid.sample, extent, extent, extent, 4};
  const DescribeOptions options{
      .grid = grid, .split = split, .optimizer = [](Parameters& parameters) { return std::make_unique<Adam>(parameters); }};
  return trace_step(net, batch, options, rank, ranks_of(grid), {.events = true});
}

bool close(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)); }

// Two computations with messages to both neighbours along depth between them, and a collective of all behind.
StepProgram halo_program(int ranks, double seconds, bool started = false) {
  StepProgram program;
  program.layers = {"conv1"};
  program.computes = {{seconds, seconds, StepEvent::Phase::forward, 0},
                      {2 * seconds, 2 * seconds, StepEvent::Phase::backward, 0}};
  program.calls.push_back({.op = "exchange", .layer = 0});
  for (const int step : {1, -1}) program.calls[0].messages.push_back({.offset = {0, step, 0, 0, 0}, .bytes = 1e6});
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  program.calls.push_back({.op = "allreduce", .kind = StepProgram::Kind::collective});
  program.calls[1].collectives.push_back(
      {{.kind = CollectiveKind::allreduce, .bytes = 1000, .ranks = std::make_shared<const std::vector<int>>(all)}, {{1, ranks}}});
  program.items = {{Do::compute, 0}, {started ? Do::start : Do::run, 0}, {Do::compute, 1}, {Do::run, 1}};
  return program;
}

}  // namespace

TEST_CASE("simulate: without jitter and contention steps on one level take what the sum says") {
  for (const bool overlaps : {true, false})
    for (const auto& grid :
         {GridExtents{}, GridExtents{.sample = 2}, GridExtents{.depth = 2}, GridExtents{.width = 2}, GridExtents{.channel = 2},
          GridExtents{.depth = 4}, GridExtents{.sample = 2, .depth = 4}, GridExtents{.depth = 4, .height = 4}}) {
      const int ranks = ranks_of(grid), rank = representative_rank(grid);
      CAPTURE(ranks);
      CAPTURE(overlaps);
      auto machine = machine_of(ranks, overlaps);
      const auto trace = trace_of(grid, rank);
      for (const bool measured : {false, true}) {
        if (measured) machine.calls.push_back({"exchange", 2, {{0, 1e-6}, {1e4, 4e-6}, {1e6, 1e-4}}});
        const double expected = time_step(trace, rank, machine, {.node_ranks = ranks}).total;
        const auto simulated = simulate(trace, rank, grid, machine, {.steps = 2, .node_ranks = ranks, .contention = false});
        REQUIRE(simulated.steps.size() == 2);
        for (const double seconds : simulated.steps) CHECK(close(seconds, expected));
        CHECK(close(simulated.mean, expected));
        // Every second of a rank is work or waiting, and the last step has a path of such seconds.
        const auto& time = simulated.ranks[static_cast<std::size_t>(rank)];
        CHECK(close(time.work + time.halos + time.redistribution + time.collectives, 2 * expected));
        const auto& path = simulated.critical;
        CHECK(close(path.work + path.halos + path.collectives, expected));
      }
    }
}

TEST_CASE("simulate: ranks at the edges of a grid have messages for neighbours alone") {
  const GridExtents grid{.depth = 3, .height = 2};
  const int rank = representative_rank(grid);
  CHECK(rank == 2);
  CHECK(place_of(5, {.sample = 1, .depth = 3, .height = 2}) == GridPlace{0, 2, 1, 0, 0, 0});
  const auto ranks = std::make_shared<const std::vector<int>>(std::vector{0, 1, 2, 3, 4, 5});
  // Rank (1, 0): to the next along depth, to the one before, and from the neighbour along height.
  StepTrace trace;
  trace.events.push_back({.op = "exchange",
                          .in = {},
                          .out = {},
                          .communicates = true,
                          .calls = {{DryRecord::What::send, {}, 4, 0, 100, 0, ranks},
                                    {DryRecord::What::send, {}, 0, 0, 60, 0, ranks},
                                    {DryRecord::What::receive, {}, 3, 0, 40, 0, ranks},
                                    {DryRecord::What::receive, {}, 0, 0, 120, 0, ranks}}});
  const auto machine = machine_of(6, true);
  const auto program = program_of(trace, rank, grid, machine);
  REQUIRE(program.calls.size() == 1);
  const auto& messages = program.calls[0].messages;
  REQUIRE(messages.size() == 3);
  // Received from before is sent to the next: one message, of the larger of both counts.
  CHECK(messages[0].offset == GridPlace{0, 1, 0, 0, 0, 0});
  CHECK(messages[0].bytes == 120);
  CHECK(messages[1].offset == GridPlace{0, -1, 0, 0, 0, 0});
  CHECK(messages[2].offset == GridPlace{0, 0, -1, 0, 0, 0});
  // By hand: a rank's link down has one message from each side along depth, that of height 0 also one along height.
  const auto simulated = simulate(program, grid, machine, {.steps = 1, .traced = {0, 1, 2, 3, 4, 5}});
  const auto ends = [&](int of) {
    double end = 0;
    for (const auto& span : simulated.spans)
      if (span.rank == of && span.lane == 2) end = std::max(end, span.start + span.seconds);
    return end;
  };
  const double byte = 1e-10, latency = 5e-6;
  CHECK(close(ends(2), latency + (120 + 60 + 40) * byte));
  CHECK(close(ends(3), latency + (120 + 60 + 40) * byte));  // it sends that of height last
  CHECK(ends(0) <= latency + (120 + 60 + 40) * byte);
  CHECK(ends(0) >= latency + 119 * byte);
}

TEST_CASE("simulate: collectives are those of each rank's own subgrid") {
  const GridExtents grid{.sample = 2, .depth = 2, .width = 3};
  StepTrace trace;
  const auto group = std::make_shared<const std::vector<int>>(std::vector{0, 1, 2, 6, 7, 8});  // along sample and width
  trace.events.push_back({.op = "allreduce",
                          .in = {},
                          .out = {},
                          .communicates = true,
                          .calls = {{DryRecord::What::collective, CollectiveKind::allreduce, -1, 0, 1000, 0, group}}});
  const auto machine = machine_of(12, true);
  const auto program = program_of(trace, 0, grid, machine);
  const auto& digits = program.calls.at(0).collectives.at(0).digits;
  REQUIRE(digits.size() == 2);
  CHECK(std::pair(digits[0].stride, digits[0].count) == std::pair(1, 3));
  CHECK(std::pair(digits[1].stride, digits[1].count) == std::pair(6, 2));
  // A straggler keeps its own group waiting, the other one has nothing to wait for.
  auto late = program;
  late.computes = {{1e-3, 1e-3, StepEvent::Phase::forward, -1}};
  late.items.insert(late.items.begin(), {Do::compute, 0});
  const auto simulated = simulate(late, grid, machine, {.steps = 1, .straggler = 7, .straggler_factor = 3});
  const auto waiting = [&](int rank) { return simulated.ranks[static_cast<std::size_t>(rank)].collectives; };
  for (const int member : {0, 1, 2, 6, 8}) CHECK(close(waiting(member), waiting(7) + 2e-3));
  for (const int other : {3, 4, 5, 9, 10, 11}) CHECK(close(waiting(other), waiting(7)));
  CHECK(simulated.slowest == 7);

  trace.events[0].calls[0].ranks = std::make_shared<const std::vector<int>>(std::vector{0, 1, 3});
  CHECK_THROWS_WITH_AS(program_of(trace, 0, grid, machine),
                       "[simulate] allreduce: 3 ranks from 0 to 3 are no subgrid of 12 ranks", Error);
}

TEST_CASE("simulate: a straggler delays all by its extra time") {
  const GridExtents grid{.depth = 5};
  const auto machine = machine_of(5, true);
  const auto program = halo_program(5, 1e-3);
  const SimulateOptions even{.steps = 2};
  const auto before = simulate(program, grid, machine, even);
  auto odd = even;
  odd.straggler = 3, odd.straggler_factor = 1.5;
  const auto behind = simulate(program, grid, machine, odd);
  CHECK(close(behind.mean, before.mean + 0.5 * 3e-3));
  CHECK(behind.slowest == 3);
  CHECK(behind.critical.cause() == "compute");
  CHECK(close(behind.critical.work, 1.5 * 3e-3));
  // The rank beside it waits for its halo, the one at the far end for the collective.
  CHECK(behind.ranks[2].halos > before.ranks[2].halos + 0.5 * 1e-3);
  CHECK(behind.ranks[0].collectives > before.ranks[0].collectives + 0.5 * 2e-3);
  CHECK(behind.utilisation < before.utilisation);
}

TEST_CASE("simulate: started calls travel beside work where the machine overlaps") {
  const GridExtents grid{.depth = 4};
  const auto program = halo_program(4, 1e-3, true);
  const auto beside = simulate(program, grid, machine_of(4, true), {.steps = 2});
  const auto after = simulate(program, grid, machine_of(4, false), {.steps = 2});
  CHECK(beside.ranks[1].halos == 0);
  CHECK(close(after.mean, beside.mean + 5e-6 + 2e6 * 1e-10));
}

TEST_CASE("simulate: contention makes nothing faster") {
  for (const auto& grid :
       {GridExtents{.depth = 16}, GridExtents{.sample = 2, .depth = 4, .height = 2}, GridExtents{.depth = 4, .width = 4}}) {
    const auto machine = machine_of(16, true, true);
    const int rank = representative_rank(grid);
    const auto trace = trace_of(grid, rank);
    const auto alone = simulate(trace, rank, grid, machine, {.steps = 2, .contention = false});
    const auto together = simulate(trace, rank, grid, machine, {.steps = 2});
    CHECK(together.mean >= alone.mean);
  }
  // Four ranks of a node send through its adapter at once, to as many others.
  StepProgram program;
  program.calls.push_back({.op = "exchange", .messages = {{.offset = {1, 0, 0, 0, 0}, .bytes = 1e6}}});
  program.items = {{Do::run, 0}};
  const auto machine = machine_of(8, true, true);
  const GridExtents grid{.sample = 2, .depth = 4};
  CHECK(close(simulate(program, grid, machine, {.steps = 1}).mean, 5e-6 + 4e-4));
  CHECK(close(simulate(program, grid, machine, {.steps = 1, .contention = false}).mean, 5e-6 + 1e-4));
}

TEST_CASE("simulate: jitter is repeatable, and costs more where more ranks wait for each other") {
  const auto run = [](int ranks, double jitter, std::uint64_t seed) {
    return simulate(halo_program(ranks, 1e-3), {.depth = ranks}, machine_of(1024, true),
                    {.steps = 20, .jitter = jitter, .seed = seed});
  };
  CHECK(run(8, 0, 1).steps == run(8, 0, 2).steps);
  const auto once = run(64, 0.1, 7), again = run(64, 0.1, 7);
  CHECK(once.steps == again.steps);
  CHECK(once.steps != run(64, 0.1, 8).steps);
  double last = 0;
  for (const int ranks : {4, 32, 256}) {
    const double extra = run(ranks, 0.1, 3).mean - run(ranks, 0, 3).mean;
    CHECK(extra > last);
    last = extra;
  }
}

TEST_CASE("simulate: CosmoFlow on 2,048 ranks") {
  const GridExtents grid{.sample = 64, .depth = 4, .height = 4, .width = 2};
  const int rank = representative_rank(grid);
  CosmoFlow net;
  const DescribeOptions options{.grid = grid,
                                .optimizer = [](Parameters& parameters) { return std::make_unique<Adam>(parameters); }};
  const Shape batch{64, 512, 512, 512, 4};
  const auto trace = trace_step(net, batch, options, rank, 2048, {.events = true});
  const auto machine = machine_of(2048, true, true);
  const auto even = simulate(trace, rank, grid, machine);
  REQUIRE(even.steps.size() == 3);
  CHECK(even.mean > 0);
  CHECK(even.utilisation > 0.1);
  CHECK(even.utilisation <= 1);
  const auto late = simulate(trace, rank, grid, machine, {.straggler = 1000, .straggler_factor = 1.2});
  CHECK(late.slowest == 1000);
  CHECK(late.mean > even.mean);
  CHECK(simulate(trace, rank, grid, machine, {.jitter = 0.05}).mean > even.mean);
}

namespace {

// As many programs as ranks repeat, of CosmoFlow with layers on grids of their own.
std::vector<StepProgram> own_programs(const GridExtents& grid, const std::vector<LayerExtents>& layers, int repeating,
                                      const Machine& machine, std::int64_t batch, double* slowest = nullptr) {
  const DescribeOptions options{.grid = grid, .grids = layers, .optimizer = [](Parameters& parameters) {
                                  return std::make_unique<Adam>(parameters, AdamAttributes{.replicated = true});
                                }};
  const auto trace = [&](int rank) {
    CosmoFlow net({.filters = 4});
    const Shape input{batch, 64, 64, 64, 4};
    auto step = trace_step(net, input, options, rank, ranks_of(grid), {.events = true});
    if (slowest) *slowest = std::max(*slowest, time_step(step, rank, machine, {.node_ranks = ranks_of(grid)}).total);
    return step;
  };
  return programs_of(trace, repeating, grid, machine, ranks_of(grid));
}

}  // namespace

TEST_CASE("simulate: layers on grids of their own take what the sum says, where ranks are alike") {
  const nn::LayerSplit channels(ChannelSplit::channels, "channel", true);
  struct Case {
    GridExtents grid;
    std::vector<LayerExtents> layers;
  };
  for (const auto& each : std::vector<Case>{{{.depth = 2}, {{"conv5-7", {.sample = 2}}}},
                                            {{.depth = 2}, {{"conv4-7", {.channel = 2}}, {"linear1", {.channel = 2}, channels}}},
                                            {{.sample = 2}, {{"conv1-3", {.depth = 2}}}},
                                            {{.channel = 2}, {{"conv3", {.channel = 2}, channels}}}})
    for (const bool overlaps : {false, true}) {
      CAPTURE(each.layers.front().layers);
      CAPTURE(overlaps);
      const auto machine = machine_of(2, overlaps);
      double expected = 0;
      const auto programs = own_programs(each.grid, each.layers, 2, machine, 2, &expected);
      REQUIRE(programs.size() == 2);
      const auto simulated = simulate(programs, each.grid, machine, {.steps = 2, .node_ranks = 2, .contention = false});
      for (const double seconds : simulated.steps) CHECK(close(seconds, expected));
    }
}

TEST_CASE("simulate: ranks with samples of their own repeat what the first of them do") {
  const GridExtents grid{.sample = 4, .depth = 2, .height = 2};
  const std::vector<LayerExtents> layers{{"conv4-5", {.sample = 8, .channel = 2}}, {"conv6-7", {.sample = 4, .channel = 4}}};
  CHECK(repeating_ranks({grid, layers[0].grid, layers[1].grid}, 8) == 4);
  CHECK(repeating_ranks({grid, layers[0].grid, layers[1].grid}, 4) == 16);  // eight ranks for four samples
  CHECK(repeating_ranks({{.depth = 16}, {.sample = 16}}, 16) == 16);
  const auto machine = machine_of(16, true, true);
  double one = 0, all = 0;
  const auto some = own_programs(grid, layers, 4, machine, 8, &one), every = own_programs(grid, layers, 16, machine, 8, &all);
  REQUIRE(some.size() == 4);
  REQUIRE(every.size() == 16);
  CHECK(close(one, all));
  const auto a = simulate(some, grid, machine), b = simulate(every, grid, machine);
  CHECK(close(a.mean, b.mean));
  CHECK(a.mean >= 0.9 * one);
  // Every message has two ends of as many bytes, and some are not between neighbours.
  double sent = 0, received = 0;
  int farthest = 0;
  for (const auto& program : every)
    for (const auto& calls : program.calls)
      for (const auto& end : calls.ends) (end.sends ? sent : received) += end.bytes, farthest = std::max(farthest, end.distance);
  CHECK(sent == received);
  CHECK(sent > 0);
  CHECK(farthest > 1);
  // Fewer than those that do the same among themselves: all are traced.
  CHECK(own_programs(grid, layers, 2, machine, 8).size() == 16);
  CHECK_THROWS_WITH_AS(own_programs(grid, layers, 3, machine, 8), "[simulate] 16 ranks do not repeat what 3 do", Error);
}

TEST_CASE("simulate: ranks with programs of their own are as one that stands for all") {
  for (const auto& grid : {GridExtents{.sample = 2}, GridExtents{.depth = 2, .height = 2}, GridExtents{.channel = 2},
                           GridExtents{.sample = 2, .depth = 4}}) {
    CAPTURE(ranks_of(grid));
    const auto machine = machine_of(ranks_of(grid), true);
    const auto trace = [&](int rank) { return trace_of(grid, rank); };
    const auto each = simulate(programs_of(trace, ranks_of(grid), grid, machine), grid, machine);
    const int rank = representative_rank(grid);
    const auto one = simulate(trace_of(grid, rank), rank, grid, machine);
    // At the ends of an axis of four, ranks have less to add to their blocks' rims.
    CHECK(each.mean == doctest::Approx(one.mean).epsilon(grid.depth > 2 ? 0.05 : 1e-9));
  }
}

TEST_CASE("simulate: who waits for what nobody sends is told by name") {
  auto program = halo_program(3, 1e-3);
  program.calls[0].messages[0].sent = false;
  CHECK_THROWS_WITH_AS(simulate(program, {.depth = 3}, machine_of(3, true)),
                       "[simulate] deadlock in step 1: rank 1 waits in exchange of conv1 for rank 0, which does not send", Error);
  CHECK_THROWS_AS(simulate(program, {.depth = 3}, machine_of(2, true)), Error);
  // A message that only its receiver knows of.
  const auto lonely = [](int rank) {
    StepTrace trace;
    const auto ranks = std::make_shared<const std::vector<int>>(std::vector{0, 1});
    if (rank == 1)
      trace.events.push_back({.op = "redistribute",
                              .in = {},
                              .out = {},
                              .communicates = true,
                              .calls = {{DryRecord::What::receive, {}, 0, 0, 8, 0, ranks}}});
    return trace;
  };
  CHECK_THROWS_WITH_AS(programs_of(lonely, 2, {.depth = 2}, machine_of(2, true)),
                       "[simulate] rank 0 sends 0 messages to rank 1, which receives 1", Error);
  for (const auto& bad :
       {SimulateOptions{.steps = 0}, SimulateOptions{.jitter = -1}, SimulateOptions{.straggler = 3},
        SimulateOptions{.straggler_factor = 0}, SimulateOptions{.traced = {3}}, SimulateOptions{.traced = std::vector(65, 0)}})
    CHECK_THROWS_AS(simulate(halo_program(3, 1e-3), {.depth = 3}, machine_of(3, true), bad), Error);
}

TEST_CASE("simulate: traces are JSON whose spans do not overlap within a lane") {
  const GridExtents grid{.depth = 4, .height = 4};
  const int rank = representative_rank(grid);
  const auto simulated =
      simulate(trace_of(grid, rank), rank, grid, machine_of(16, true, true), {.jitter = 0.1, .traced = {0, rank, 15}});
  const auto trace = nlohmann::json::parse(perfetto(simulated));
  CHECK(trace.at("displayTimeUnit") == "ms");
  std::map<std::tuple<int, int>, std::vector<std::pair<double, double>>> lanes;
  std::map<int, std::string> processes;
  std::map<std::tuple<int, int>, std::string> names;
  for (const auto& event : trace.at("traceEvents")) {
    const int pid = event.at("pid");
    if (event.at("ph") == "X") lanes[{pid, event.at("tid")}].emplace_back(event.at("ts"), event.at("dur"));
    else if (event.at("name") == "process_name") processes[pid] = event.at("args").at("name");
    else names[{pid, event.at("tid")}] = event.at("args").at("name");
  }
  CHECK(processes == std::map<int, std::string>{{0, "rank 0"}, {rank, fmt::format("rank {}", rank)}, {15, "rank 15"}});
  CHECK(names.at({0, 0}) == "steps");
  CHECK(names.at({0, 1}) == "compute");
  CHECK(names.at({0, 2}) == "communication");
  CHECK(names.at({0, 3}) == "data");
  CHECK(lanes.at({0, 0}).size() == 3);
  for (auto& [lane, spans] : lanes) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i) CHECK(spans[i - 1].first + spans[i - 1].second <= spans[i].first + 1e-4);
  }
  // Work and standing still fill a step.
  double filled = 0;
  for (const int lane : {1, 2})
    for (const auto& [start, duration] : lanes.at({rank, lane})) filled += duration;
  double steps = 0;
  for (const auto& [start, duration] : lanes.at({rank, 0})) steps += duration;
  CHECK(filled == doctest::Approx(steps).epsilon(1e-4));
}
