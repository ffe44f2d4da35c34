#pragma once
// Lines of the benchmark of contrastive losses: stored as CSV, shown as tables and as a plot.

#include <cstdint>
#include <filesystem>
#include <string>

namespace mpigrad::bench {

struct Measurement {
  std::string loss, form, setting;
  std::int64_t samples = 0;
  double predicted = 0;             // bytes
  double tensors = 0, process = 0;  // peak bytes of all ranks; 0 if the line was not run
  double seconds = 0;               // seconds of the slowest rank
  double processor = 0, floor = 0;  // seconds of all processors: for the step, and for its matrix products only
};

void append(const std::filesystem::path& csv, const Measurement& m);
// STEM.md and STEM.png
void write_report(const std::filesystem::path& csv, const std::filesystem::path& stem);

}  // namespace mpigrad::bench
