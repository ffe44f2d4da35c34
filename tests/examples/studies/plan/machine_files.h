#pragma once
// Machine files for tests: those of examples/machines, and one that is good.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/machine/machine.h"
#include "framework/base/error.h"

#ifndef MPIGRAD_SOURCE_ROOT
#define MPIGRAD_SOURCE_ROOT "."
#endif

namespace mpigrad::planner {

// Builds without toml++ refuse every file.
inline bool reads_files() {
  try {
    parse_machine("", "");
  } catch (const Error& error) {
    return std::string(error.what()).find("install") == std::string::npos;
  }
  return true;
}

inline std::filesystem::path machines() {
  const char* told = std::getenv("MPIGRAD_SOURCE_ROOT");
  return std::filesystem::path(told != nullptr ? told : MPIGRAD_SOURCE_ROOT) / "examples" / "machines";
}

// Line by line, as errors name lines.
inline const std::vector<std::string> good{
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

inline std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

}  // namespace mpigrad::planner
