#include "models/train/training_log.h"

#include <cmath>
#include <utility>

#include "framework/base/error.h"

namespace mpigrad {
namespace {

std::vector<std::string> columns(const std::vector<std::string>& names) {
  std::vector<std::string> all{"epoch", "train_loss"};
  all.insert(all.end(), names.begin(), names.end());
  for (const auto* name : {"learning_rate", "samples_per_second", "seconds", "waiting_seconds", "loss_scale", "skipped_steps"})
    all.emplace_back(name);
  return all;
}

EpochRow row_of(const std::vector<double>& cells, std::size_t values) {
  const auto* behind = cells.data() + 2 + values;
  return {.report = {.epoch = std::llround(cells[0]) - 1,
                     .loss = cells[1],
                     .learning_rate = behind[0],
                     .samples_per_second = behind[1],
                     .seconds = behind[2],
                     .waiting_seconds = behind[3],
                     .loss_scale = behind[4],
                     .skipped_steps = std::llround(behind[5])},
          .values = {cells.begin() + 2, cells.begin() + 2 + static_cast<std::ptrdiff_t>(values)}};
}

}  // namespace

TrainingLog::TrainingLog(const TrainingLogOptions& o) : names_(o.values) {
  for (const auto& name : names_)
    require(!name.empty() && name.find_first_of(",\"\r\n") == std::string::npos,
            "[training] '{}' cannot be the name of a column: it is empty, or has a comma, a quote or a line's end", name);
  if (o.folder.empty()) return;
  metrics_.emplace(o.folder / file, columns(names_), o.first_epoch);
  for (const auto& cells : metrics_->earlier()) rows_.push_back(row_of(cells, names_.size()));
  if (!o.tensorboard || !tensorboard::available()) return;
  if (o.replaces) replaced_ = o.folder;
  events_ = std::make_unique<tensorboard::EventFile>(o.folder / tensorboard::event_file_name(o.first_step));
}

void TrainingLog::add(const EpochReport& r, const std::vector<double>& values) {
  require(values.size() == names_.size(), "[training] {} values of an epoch, {} names", values.size(), names_.size());
  rows_.push_back({r, values});
  if (!metrics_) return;
  std::vector<CsvCell> cells{r.epoch + 1, r.loss};
  std::vector<std::pair<std::string, double>> numbers{{"train_loss", r.loss}};
  for (std::size_t i = 0; i < names_.size(); ++i) cells.emplace_back(values[i]), numbers.emplace_back(names_[i], values[i]);
  for (const CsvCell& cell : {CsvCell(r.learning_rate), CsvCell(r.samples_per_second), CsvCell(r.seconds),
                              CsvCell(r.waiting_seconds), CsvCell(r.loss_scale), CsvCell(r.skipped_steps)})
    cells.push_back(cell);
  numbers.insert(
      numbers.end(),
      {{"learning_rate", r.learning_rate}, {"samples_per_second", r.samples_per_second}, {"waiting_seconds", r.waiting_seconds}});
  metrics_->row(cells);
  if (!events_) return;
  if (!replaced_.empty()) tensorboard::remove_event_files(std::exchange(replaced_, {}));
  events_->scalars(r.steps, numbers);
}

}  // namespace mpigrad
