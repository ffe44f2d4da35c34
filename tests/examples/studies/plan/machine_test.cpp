// Machine files: those of examples/machines, what a reader refuses and in which line, and which level joins two ranks.

#include "examples/studies/plan/planner/machine/machine.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "framework/base/error.h"

#ifndef MPIGRAD_SOURCE_ROOT
#define MPIGRAD_SOURCE_ROOT "."
#endif

using namespace mpigrad;
using namespace mpigrad::planner;

namespace {

// Builds without toml++ refuse every file.
bool reads_files() {
  try {
    parse_machine("", "");
  } catch (const Error& error) {
    return std::string(error.what()).find("install") == std::string::npos;
  }
  return true;
}

std::filesystem::path machines() {
  const char* told = std::getenv("MPIGRAD_SOURCE_ROOT");
  return std::filesystem::path(told != nullptr ? told : MPIGRAD_SOURCE_ROOT) / "examples" / "machines";
}

// Line by line, as errors name lines.
const std::vector<std::string> good{
    /* 1 */ "name = \"test\"",
    /* 2 */ "overlaps = false",
    /* 3 */ "[device]",
    /* 4 */ "name = \"chip\"",
    /* 5 */ "memory = 1000000000",
    /* 6 */ "memory_bandwidth = 1e11",
    /* 7 */ "launch = 0",
    /* 8 */ "[device.flops]",
    /* 9 */ "float32 = 1e12",
    /* 10 */ "[device.efficiency]",
    /* 11 */ "conv = 0.5",
    /* 12 */ "[[level]]",
    /* 13 */ "name = \"node\"",
    /* 14 */ "ranks = 4",
    /* 15 */ "latency = 1e-6",
    /* 16 */ "bandwidth = 1e10",
    /* 17 */ "[[level]]",
    /* 18 */ "name = \"net 2.0\"",
    /* 19 */ "ranks = 8",
    /* 20 */ "latency = 5e-6",
    /* 21 */ "bandwidth = 1e9",
    /* 22 */ "sharing = 4",
    /* 23 */ "[disk]",
    /* 24 */ "read = 2e9",
    /* 25 */ "[measured]",
    /* 26 */ "ops = [",
    /* 27 */
    "{op = \"relu\", in = \"float32[2,8]\", out = \"float32[2,8] -\", ranks = 2, flops = 0, bytes = 128, seconds = 1e-6},",
    /* 28 */ "]",
    /* 29 */ "calls = [{call = \"allreduce\", ranks = 2, points = [[8, 1e-6], [1024, 3e-6], [4096, 4e-6]]}]",
    /* 30 */ "[sources]",
    /* 31 */ "\"device\" = \"data sheet\"",
    /* 32 */ "\"device.launch\" = \"assumed\"",
    /* 33 */ "\"device.flops.float32\" = \"data sheet\"",
    /* 34 */ "\"device.efficiency\" = \"assumed\"",
    /* 35 */ "\"level.node\" = \"measured\"",
    /* 36 */ "\"level.net 2.0.ranks\" = \"two nodes\"",
    /* 37 */ "\"level.net 2.0.latency\" = \"measured\"",
    /* 38 */ "\"level.net 2.0.bandwidth\" = \"measured\"",
    /* 39 */ "\"level.net 2.0.sharing\" = \"one adapter\"",
    /* 40 */ "\"disk\" = \"measured\"",
    /* 41 */ "\"measured\" = \"measured\"",
};

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

// The good file with one line, counted from 1, replaced: by "" it is left out and yet counted.
std::string changed(std::size_t line, const std::string& by) {
  auto lines = good;
  lines.at(line - 1) = by;
  return text_of(lines);
}

std::string refusal(const std::string& text) {
  try {
    parse_machine(text, "a.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// That the file with this line is refused in line `at`, in one line that has these words.
void refuses(std::size_t line, const std::string& by, std::size_t at, const std::string& words) {
  const auto message = refusal(changed(line, by));
  CAPTURE(by);
  CAPTURE(message);
  CHECK(message.starts_with("[planner] a.toml:" + std::to_string(at) + ": "));
  CHECK(message.find(words) != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

auto values(const Device& d) { return std::tie(d.name, d.memory, d.memory_bandwidth, d.launch, d.flops, d.efficiency); }
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

TEST_CASE("machine: no TOML") {
  if (!reads_files()) return;
  refuses(5, "memory = ", 5, "no TOML");
  refuses(5, "memory = 40 GB", 5, "no TOML");
  refuses(5, "name = \"again\"", 5, "no TOML");
  refuses(12, "[[level]", 12, "no TOML");
  CHECK_THROWS_WITH_AS(read_machine("no/such.toml"), "[planner] no/such.toml: no such machine file", Error);
  CHECK_THROWS_WITH_AS(read_machine(machines()), doctest::Contains("no such machine file"), Error);
}

TEST_CASE("machine: TOML without end") {
  if (!reads_files()) return;
  std::string key = "a";
  for (int i = 0; i < 100000; ++i) key += ".a";
  for (const auto& [text, excess] : {std::tuple{key + " = 1", "has a key of more than 64 parts"},
                                     {"[" + key + "]", "has a key of more than 64 parts"},
                                     {"a = " + std::string(100000, '['), "has brackets in brackets, more than 64 deep"}}) {
    std::string problem;
    try {
      parse_machine(text, "x.toml");
    } catch (const Error& error) {
      problem = error.what();
    }
    CHECK(problem == std::string("[planner] x.toml:1: the file ") + excess);
  }
}

TEST_CASE("machine: keys that are unknown or missing") {
  if (!reads_files()) return;
  refuses(2, "overlap = true", 2, "the file has no key \"overlap\"");
  refuses(5, "memroy = 1e9", 5, "[device] has no key \"memroy\", but name, memory,");
  refuses(9, "fp32 = 1e12", 9, "[device.flops] has no key \"fp32\"");
  refuses(11, "pool = 0.5", 11, "[device.efficiency] has no key \"pool\"");
  refuses(22, "shared = 4", 22, "[[level]] has no key \"shared\"");
  refuses(24, "speed = 2e9", 24, "[disk] has no key \"speed\"");
  refuses(26, "opss = [", 26, "[measured] has no key \"opss\"");
  refuses(23, "[discs]", 23, "the file has no key \"discs\"");
  refuses(1, "", 1, "lacks \"name\"");
  refuses(2, "", 1, "lacks \"overlaps\"");
  refuses(5, "", 3, "[device] lacks \"memory\"");
  refuses(9, "tf32 = 1e12", 8, "[device.flops] lacks \"float32\"");
  refuses(13, "", 12, "[[level]] lacks \"name\"");
  refuses(20, "", 17, "[[level]] \"net 2.0\" lacks \"latency\"");
  CHECK(refusal("").find("a.toml:1: the file lacks \"name\"") != std::string::npos);
}

TEST_CASE("machine: types that do not fit") {
  if (!reads_files()) return;
  refuses(1, "name = 5", 1, "name of the file is of type integer, but has to be: text");
  refuses(1, "name = \"\"", 1, "is empty");
  refuses(2, "overlaps = 1", 2, "true or false");
  refuses(5, "memory = \"40 GB\"", 5, "memory of [device] is of type string, but has to be: number");
  refuses(14, "ranks = 4.0", 14, "ranks of [[level]] \"node\" is of type floating-point, but has to be: whole number");
  refuses(34, "\"device.efficiency\" = 1", 34, "has to be: text");
  refuses(35, "level.node = \"measured\"", 35, "in quotes");
  refuses(29, "calls = [1]", 29, "holds integer where a table is needed");
  CHECK(refusal("name = \"a\"\noverlaps = true\nlevel = []\n[device]\nname = \"b\"\nmemory = 1\nmemory_bandwidth = 1\nlaunch = "
                "1\n[device.flops]\n"
                "float32 = 1\n")
            .find("a.toml:3: level of the file is empty") != std::string::npos);
  CHECK(refusal("name = \"a\"\noverlaps = true\nlevel = 1\ndevice = 3\n").find("a.toml:4: device of the file") !=
        std::string::npos);
}

TEST_CASE("machine: values that cannot be") {
  if (!reads_files()) return;
  for (const auto* value : {"0", "-1", "0.0", "-1e9", "nan", "inf", "-inf"}) {
    refuses(5, std::string("memory = ") + value, 5, "has to be above 0");
    refuses(6, std::string("memory_bandwidth = ") + value, 6, "has to be above 0");
    refuses(9, std::string("float32 = ") + value, 9, "has to be above 0");
    refuses(16, std::string("bandwidth = ") + value, 16, "bandwidth of [[level]] \"node\" is");
    refuses(24, std::string("read = ") + value, 24, "has to be above 0");
    refuses(11, std::string("conv = ") + value, 11, "has to be above 0 and at most 1");
  }
  for (const auto* value : {"-1", "nan", "inf"}) {
    refuses(7, std::string("launch = ") + value, 7, "has to be at least 0");
    refuses(15, std::string("latency = ") + value, 15, "has to be at least 0");
  }
  refuses(11, "conv = 1.01", 11, "at most 1");
  refuses(22, "sharing = 0.5", 22, "at least 1");
  refuses(14, "ranks = 0", 14, "from 1 to");
  refuses(14, "ranks = 3000000000", 14, "from 1 to");
  refuses(19, "ranks = 4", 19, "has 4: levels go from the innermost to the outermost");
  refuses(19, "ranks = 2", 19, "innermost to the outermost");
  refuses(19, "ranks = 10", 19, "no multiple of the 4 of \"node\"");
  refuses(18, "name = \"node\"", 18, "is that of another level");
  refuses(27, "{op = \"relu\", in = \"float32[2,x]\", out = \"-\", ranks = 2, flops = 0, bytes = 1, seconds = 1},", 27,
          "operands");
  refuses(27, "{op = \"relu\", in = \"-\", out = \"float32[2,]\", ranks = 2, flops = 0, bytes = 1, seconds = 1},", 27,
          "operands");
  refuses(27, "{op = \"relu\", in = \"-\", out = \"-\", ranks = 2, flops = 0, bytes = 1, seconds = -1},", 27, "at least 0");
  const auto points = [](const std::string& list) {
    return "calls = [{call = \"allreduce\", ranks = 2, points = " + list + "}]";
  };
  refuses(29, points("[]"), 29, "fewer than two");
  refuses(29, points("[[8, 1e-6]]"), 29, "fewer than two");
  refuses(29, points("[[8, 1e-6], [8, 2e-6]]"), 29, "order of their bytes");
  refuses(29, points("[[8, 1e-6], [9, -1]]"), 29, "at least 0");
  refuses(29, points("[[8, 1e-6], [9, nan]]"), 29, "at least 0");
  refuses(29, points("[[8, 1e-6], [9]]"), 29, "has to be: [bytes, seconds]");
  refuses(29, points("[8, 1e-6]"), 29, "has to be: [bytes, seconds]");
  refuses(29, points("3"), 29, "array of [bytes, seconds]");
  refuses(29, "calls = [{call = \"allreduce\", ranks = 1, points = [[8, 1], [9, 1]]}]", 29, "from 2 to");
}

TEST_CASE("machine: every number has a source, and every source a number") {
  if (!reads_files()) return;
  refuses(31, "", 5, "device.memory has no source");
  refuses(33, "", 9, "device.flops.float32 has no source");
  refuses(34, "", 11, "device.efficiency.conv has no source");
  refuses(35, "", 14, "level.node.ranks has no source");
  refuses(39, "", 22, "level.net 2.0.sharing has no source");
  refuses(40, "", 24, "disk.read has no source");
  refuses(41, "", 26, "measured.ops has no source");
  refuses(31, "\"device\" = \" \"", 31, "is empty");
  refuses(36, "\"level.net.ranks\" = \"two nodes\"", 36, "names no number of this file");
  refuses(22, "", 39, "names no number of this file");
  const auto end = std::find(good.begin(), good.end(), "[sources]");
  CHECK(refusal(text_of({good.begin(), end})).find("a.toml:5: device.memory has no source") != std::string::npos);
  // The table's source stands for what is right in it alone.
  CHECK(refusal(changed(33, "\"device.memory\" = \"data sheet\"")).find("device.flops.float32 has no source") !=
        std::string::npos);
}
