#pragma once
// Lines of the benchmark of contrastive losses: kept as CSV, shown as tables and as a plot.

#include <cstdint>
#include <filesystem>
#include <string>

namespace mpigrad::bench {

struct Measurement {
  std::string loss, form, setting;
  std::int64_t samples = 0;
  double predicted = 0;             // bytes
  double tensors = 0, process = 0;  // peak bytes of all ranks; 0 where nothing was run
  double seconds = 0;               // of the slowest rank
  double processor = 0, floor = 0;  // seconds of all processors: of the step, of its products of matrices alone
};

void append(const std::filesystem::path& csv, const Measurement& m);
// STEM.md and STEM.png
void write_report(const std::filesystem::path& csv, const std::filesystem::path& stem);

}  // namespace mpigrad::bench
