#pragma once
// The log of a training: a row of metrics.csv for each epoch, and the same numbers for TensorBoard.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/train/metrics_file.h"
#include "models/train/tensorboard/events.h"
#include "models/train/training.h"

namespace mpigrad {

// The report of an epoch, and the values that the run measured.
struct EpochRow {
  EpochReport report;
  std::vector<double> values{};
};

struct TrainingLogOptions {
  std::filesystem::path folder;     // empty: nothing is written
  std::vector<std::string> values;  // names of the run's own values
  std::int64_t first_epoch = 0;     // rows of earlier epochs are kept
  std::int64_t first_step = 0;      // of the optimizer
  bool tensorboard = true;          // if this build supports it
  bool replaces = false;            // the first row removes TensorBoard events of earlier runs
};

// Columns of the table, for every trainer: epoch (from 1), train_loss, the run's own values, learning_rate, samples_per_second,
// seconds, waiting_seconds (for data), loss_scale, skipped_steps. One rank writes; the others have a log without a folder.
class TrainingLog {
 public:
  static constexpr const char* file = "metrics.csv";

  explicit TrainingLog(const TrainingLogOptions& options);
  // The row has been passed to the operating system when it returns. Errors: the number of values is not that of the names; a
  // file cannot be written.
  void add(const EpochReport& report, const std::vector<double>& values);
  // All rows, including kept ones.
  const std::vector<EpochRow>& rows() const { return rows_; }

 private:
  std::vector<std::string> names_;
  std::vector<EpochRow> rows_;
  std::optional<MetricsFile> metrics_;
  std::unique_ptr<tensorboard::EventFile> events_;
  std::filesystem::path replaced_;  // the folder whose event files are removed before the first row
};

}  // namespace mpigrad
