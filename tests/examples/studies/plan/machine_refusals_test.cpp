// Machine files: what a reader refuses and in which line.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>

#include "examples/studies/plan/planner/machine/machine.h"
#include "framework/base/error.h"
#include "tests/examples/studies/plan/machine_files.h"

using namespace mpigrad;
using namespace mpigrad::planner;

namespace {

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

}  // namespace

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
  refuses(19, "ranks = 10", 19, "not a multiple of the 4 of \"node\"");
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
