// Machine files: those of examples/machines, what is read and written again, and which level joins two ranks. What a reader
// refuses is in machine_refusals_test.cpp.

#include "examples/studies/plan/planner/machine/machine.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "tests/examples/studies/plan/machine_files.h"

using namespace mpigrad;
using namespace mpigrad::planner;

namespace {

auto values(const Device& d) { return std::tie(d.name, d.memory, d.memory_bandwidth, d.launch, d.gpu, d.flops, d.efficiency); }
auto values(const Level& l) { return std::tie(l.name, l.ranks, l.latency, l.bandwidth, l.sharing); }
auto values(const Disk& d) { return std::tie(d.read, d.write, d.rank_read, d.rank_write); }
auto values(const MeasuredOp& o) { return std::tie(o.op, o.in, o.out, o.ranks, o.flops, o.bytes, o.seconds); }
auto values(const MeasuredCall& c) { return std::tie(c.call, c.ranks, c.points); }

template <class Value>
void check_same(const std::vector<Value>& a, const std::vector<Value>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK((values(a[i]) == values(b[i])));
}

void check_same(const Machine& a, const Machine& b) {
  CHECK(a.name == b.name);
  CHECK(a.overlaps == b.overlaps);
  CHECK((values(a.device) == values(b.device)));
  check_same(a.levels, b.levels);
  CHECK((values(a.disk) == values(b.disk)));
  check_same(a.ops, b.ops);
  check_same(a.calls, b.calls);
  CHECK(a.sources == b.sources);
}

}  // namespace

TEST_CASE("machine: the innermost level that joins two ranks") {
  Machine machine;
  machine.name = "three levels";
  machine.levels = {{.name = "socket", .ranks = 3}, {.name = "node", .ranks = 6}, {.name = "tree", .ranks = 24}};
  CHECK(machine.ranks() == 24);
  CHECK(machine.level_between(0, 0) == 0);
  CHECK(machine.level_between(0, 2) == 0);
  CHECK(machine.level_between(2, 3) == 1);
  CHECK(machine.level_between(5, 0) == 1);
  CHECK(machine.level_between(3, 5) == 0);
  CHECK(machine.level_between(5, 6) == 2);
  CHECK(machine.level_between(6, 8) == 0);
  CHECK(machine.level_between(0, 23) == 2);
  CHECK(machine.level_between(21, 23) == 0);
  CHECK_THROWS_WITH_AS(machine.level_between(0, 24), "[planner] machine three levels has ranks 0 to 23: no level joins 0 and 24",
                       Error);
  CHECK_THROWS_AS(machine.level_between(-1, 0), Error);
  CHECK_THROWS_AS(Machine{}.level_between(0, 0), Error);
}

TEST_CASE("machine: calls between measured sizes") {
  const MeasuredCall call{.call = "allreduce", .ranks = 2, .points = {{8, 1}, {16, 3}, {32, 4}}};
  CHECK(call.seconds(0) == 1);
  CHECK(call.seconds(8) == 1);
  CHECK(call.seconds(12) == 2);
  CHECK(call.seconds(16) == 3);
  CHECK(call.seconds(24) == 3.5);
  CHECK(call.seconds(32) == 4);
  CHECK(call.seconds(64) == 6);
  const MeasuredCall noisy{.call = "allreduce", .ranks = 2, .points = {{8, 2}, {16, 1}}};
  CHECK(noisy.seconds(12) == 1.5);
  CHECK(noisy.seconds(1e6) == 1);
  CHECK_THROWS_AS(MeasuredCall{}.seconds(1), Error);
}

TEST_CASE("machine: every file of examples/machines is read and sane") {
  if (!reads_files()) return;
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(machines())) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    CAPTURE(entry.path().string());
    const auto machine = read_machine(entry.path());
    CHECK(machine.device.memory >= 8e9);
    CHECK(machine.device.memory <= 1e12);
    // A rank is a GPU or a processor, or one core of it.
    const bool core = machine.ranks() == 2;
    CHECK(machine.device.memory_bandwidth >= (core ? 5e9 : 1e11));
    CHECK(machine.device.memory_bandwidth <= 1e13);
    CHECK(machine.device.launch <= 1e-4);
    const double float32 = machine.device.flops.at("float32");
    CHECK(float32 >= (core ? 1e10 : 1e12));
    CHECK(float32 <= 1e14);
    for (const auto& [type, flops] : machine.device.flops) {
      CAPTURE(type);
      if (type == "float64") CHECK(flops <= float32);
      else CHECK(flops >= float32);
      CHECK(flops <= 20 * float32);
      // What reaches less of a higher peak is still faster.
      if (machine.device.efficiency.contains("conv_" + type))
        CHECK(flops * machine.device.efficiency.at("conv_" + type) > float32 * machine.device.efficiency.at("conv"));
    }
    for (const auto* kind : {"conv", "linear", "other", "memory"}) CHECK(machine.device.efficiency.contains(kind));
    for (std::size_t i = 0; i < machine.levels.size(); ++i) {
      const auto& level = machine.levels[i];
      CAPTURE(level.name);
      CHECK(level.latency >= (core ? 1e-7 : 1e-6));
      CHECK(level.latency <= 1e-4);
      CHECK(level.bandwidth <= machine.device.memory_bandwidth);
      if (i > 0) CHECK(level.bandwidth / level.sharing <= machine.levels[i - 1].bandwidth / machine.levels[i - 1].sharing);
    }
    check_same(parse_machine(to_toml(machine), "again"), machine);
  }
  CHECK(files >= 11);
}

TEST_CASE("machine: the example of examples/machines/README.md is read") {
  if (!reads_files()) return;
  std::ifstream readme(machines() / "README.md");
  std::string text;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("```")) inside = line == "```toml";
    else if (inside) text += line + "\n";
  }
  const auto machine = parse_machine(text, "README.md");
  CHECK(machine.ranks() == 8);
  CHECK(machine.levels.back().sharing == 4);
}

TEST_CASE("machine: the oracle's links are those of ABCI") {
  if (!reads_files()) return;
  const auto abci = read_machine(machines() / "abci.toml");
  // 2 GPUs of a node, 68 of a leaf, 136 of a rack, and more.
  const auto latency = [&](int ranks) {
    return abci.levels.at(static_cast<std::size_t>(abci.level_between(0, ranks - 1))).latency;
  };
  CHECK(latency(2) == 9e-6);
  CHECK(latency(8) == 30.31e-6);
  CHECK(latency(64) == 30.31e-6);
  CHECK(latency(128) == 30.49e-6);
  CHECK(latency(1024) == 30.98e-6);
}

TEST_CASE("machine: values are those of the file") {
  if (!reads_files()) return;
  const auto machine = parse_machine(text_of(good), "a.toml");
  CHECK(machine.name == "test");
  CHECK_FALSE(machine.overlaps);
  CHECK(machine.device.memory == 1e9);
  CHECK(machine.device.launch == 0);
  CHECK(machine.device.efficiency.at("conv") == 0.5);
  REQUIRE(machine.levels.size() == 2);
  CHECK(machine.levels[0].sharing == 1);
  CHECK(machine.levels[1].name == "net 2.0");
  CHECK(machine.levels[1].sharing == 4);
  CHECK(machine.disk.read == 2e9);
  CHECK(machine.disk.write == 0);
  REQUIRE(machine.ops.size() == 1);
  CHECK(machine.ops[0].out == "float32[2,8] -");
  REQUIRE(machine.calls.size() == 1);
  CHECK(machine.calls[0].points.at(1) == std::pair<double, double>{1024, 3e-6});
  CHECK(machine.sources.at("level.net 2.0.sharing") == "one adapter");
}

TEST_CASE("machine: what is written is read again, digit by digit") {
  if (!reads_files()) return;
  auto machine = parse_machine(text_of(good), "a.toml");
  check_same(parse_machine(to_toml(machine), "b"), machine);
  machine.name = "quotes \" and \\ and\ta tab, \n a line, \x7f and \u00e9";
  machine.device.memory = 1e9 / 3;
  machine.device.memory_bandwidth = 1e300;
  machine.device.launch = 5e-324;
  machine.device.gpu = true;
  machine.levels[0].latency = 0.1 + 0.2;
  machine.levels[0].sharing = 1;
  machine.levels[1].sharing = 4.0 / 3;
  machine.sources["device.memory"] = "two \"lines\"\nof text";
  machine.disk = {};
  machine.sources.erase("disk");
  machine.ops[0].seconds = 1.0 / 7;
  machine.ops.push_back({.op = "random", .in = "", .out = "float32[4]", .ranks = 1, .flops = 0, .bytes = 16, .seconds = 0});
  check_same(parse_machine(to_toml(machine), "b"), machine);
  machine.device.efficiency.clear(), machine.sources.erase("device.efficiency");
  machine.ops.clear(), machine.calls.clear(), machine.sources.erase("measured");
  check_same(parse_machine(to_toml(machine), "b"), machine);
  // What could not be read is not written.
  machine.levels[0].bandwidth = 0;
  CHECK_THROWS_AS(to_toml(machine), Error);
}
