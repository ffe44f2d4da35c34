#pragma once
// The table of a run: one row for each epoch.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/train/metrics.h"

namespace mpigrad {

// A CSV file whose first column is the epoch, from 1. It is neither created nor replaced before the first epoch has ended, so a
// run that fails earlier removes no older file and leaves none.
class MetricsFile {
 public:
  // If training is resumed, the rows of the first `epochs_before` epochs in an existing file with these columns are kept.
  MetricsFile(const std::filesystem::path& path, const std::vector<std::string>& columns, std::int64_t epochs_before);

  // The rows that are kept, as numbers.
  const std::vector<std::vector<double>>& earlier() const { return earlier_; }
  void row(std::span<const CsvCell> cells);

 private:
  void read_earlier(std::int64_t epochs);

  std::filesystem::path path_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> earlier_text_;
  std::vector<std::vector<double>> earlier_;
  std::optional<CsvWriter> csv_;
};

}  // namespace mpigrad
