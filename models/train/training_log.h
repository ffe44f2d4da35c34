#pragma once
// What a training writes while it goes on: a row of metrics.csv for each epoch, and the same numbers for TensorBoard.

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

// An epoch as training reports it, and the run's own measures of it.
struct EpochRow {
  EpochReport report;
  std::vector<double> values{};
};

struct TrainingLogOptions {
  std::filesystem::path folder;     // empty: nothing is written
  std::vector<std::string> values;  // the names of the run's own measures
  std::int64_t first_epoch = 0;     // rows of earlier ones stay
  std::int64_t first_step = 0;      // of the optimizer
  bool tensorboard = true;          // where this build can
  bool replaces = false;            // with the first row, takes out what earlier runs wrote for TensorBoard
};

// Columns of the table, for every trainer: epoch (from 1), train_loss, the run's own, learning_rate, samples_per_second, seconds,
// waiting_seconds (for data), loss_scale, skipped_steps. Of one rank; the others' are made without a folder.
class TrainingLog {
 public:
  static constexpr const char* file = "metrics.csv";

  explicit TrainingLog(const TrainingLogOptions& options);
  // On its way to the disk when it returns. Errors: another number of values than names, files that cannot be written.
  void add(const EpochReport& report, const std::vector<double>& values);
  // Those that stayed included.
  const std::vector<EpochRow>& rows() const { return rows_; }

 private:
  std::vector<std::string> names_;
  std::vector<EpochRow> rows_;
  std::optional<MetricsFile> metrics_;
  std::unique_ptr<tensorboard::EventFile> events_;
  std::filesystem::path replaced_;  // where event files go before the first row is written
};

}  // namespace mpigrad
