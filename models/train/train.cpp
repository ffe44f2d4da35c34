#include "models/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include "comm/together.h"
#include "framework/engine/activity.h"
#include "models/train/restart/checkpoints.h"

namespace mpigrad {
namespace {

// Decides after an epoch whether training ends, and why.
class Stopping {
 public:
  Stopping(const TrainerOptions& options, const TrainerHooks& hooks, const Communicator& world)
      : o_(options), hooks_(hooks), world_(world) {
    require(o_.patience >= 0, "[training] patience is a number of epochs, got {}", o_.patience);
    if (!monitors() || o_.monitor == "train_loss") return;
    const auto at = std::find(o_.values.begin(), o_.values.end(), o_.monitor);
    require(at != o_.values.end(), "[training] there is no value {} to monitor", o_.monitor);
    place_ = static_cast<std::size_t>(at - o_.values.begin());
  }

  // Reads the rows of earlier epochs, which rank 0 has. Collective.
  void remember(const std::vector<EpochRow>& rows) {
    if (!monitors()) return;
    auto count = static_cast<std::int64_t>(rows.size());
    world_.transport().bcast(&count, 1, DType::int64, 0);
    std::vector<double> values;
    for (const auto& row : rows) values.push_back(monitored(row));
    values.resize(static_cast<std::size_t>(count));
    world_.transport().bcast(values.data(), count, DType::float64, 0);
    for (const double value : values) without_ = improves(value) ? 0 : without_ + 1;
  }

  // Notes an epoch, once; returns whether it is better than all before.
  bool note(const EpochRow& row) {
    if (!monitors()) return false;
    double value = monitored(row);
    world_.transport().bcast(&value, 1, DType::float64, 0);  // values may differ between ranks
    const bool better = improves(value);
    without_ = better ? 0 : without_ + 1;
    return better;
  }

  std::string reason(const EpochRow& row) {
    if (o_.patience > 0 && without_ >= o_.patience) return fmt::format("{} was no better for {} epochs", o_.monitor, without_);
    const double most_seconds = 60 * o_.most_minutes;
    if (most_seconds > 0 && row.report.epoch + 1 < o_.fit.epochs) {
      // Clocks of ranks differ.
      double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
      world_.transport().bcast(&seconds, 1, DType::float64, 0);
      if (seconds >= most_seconds) return fmt::format("{} are over", format_duration(most_seconds));
    }
    return hooks_.stop ? hooks_.stop(row) : std::string();
  }

 private:
  bool monitors() const { return o_.patience > 0 || o_.keep_best; }
  double monitored(const EpochRow& row) const { return place_ ? row.values[*place_] : row.report.loss; }
  bool improves(double value) {
    if (std::isnan(value)) return false;
    if (best_ && !(o_.larger_is_better ? value > *best_ : value < *best_)) return false;
    best_ = value;
    return true;
  }

  const TrainerOptions& o_;
  const TrainerHooks& hooks_;
  const Communicator& world_;
  std::optional<std::size_t> place_;
  std::optional<double> best_;
  std::int64_t without_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "score 0.25, number 7"
std::string text_of(const std::vector<std::string>& names, const std::vector<double>& values) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) text += fmt::format("{}{} {:.4g}", i > 0 ? ", " : "", names[i], values[i]);
  return text;
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, "[training] the folder {} cannot be created: {}", folder.string(), error.message());
}

// `steps` and `batches` are those of an epoch; epochs(options) runs the epochs.
TrainerResult train_epochs(nn::Module& net, Optimizer& optimizer, std::int64_t steps, std::int64_t batches,
                           const Communicator& world, const TrainerHooks& hooks, const TrainerOptions& o,
                           const std::function<void(const FitOptions&)>& epochs) {
  const bool writes = world.rank() == 0 && !o.folder.empty();
  const auto first_step = steps_before(optimizer, o.fit, steps);
  // All ranks note signals before the table of epochs tells others that the training has begun.
  std::optional<NotedSignals> signals;
  if (o.notes_signals && !o.folder.empty()) signals.emplace();
  together(world, [&] {
    if (writes) make_folder(o.folder);
  });
  std::optional<TrainingLog> log;
  together(world, [&] {
    log.emplace(TrainingLogOptions{.folder = writes ? o.folder : std::filesystem::path(),
                                   .values = o.values,
                                   .first_epoch = o.fit.first_epoch,
                                   .first_step = first_step,
                                   .replaces = o.replaces});
  });
  Stopping stopping(o, hooks, world);
  stopping.remember(log->rows());
  auto shown = o.progress;
  if (shown.rank == 0) shown.rank = world.rank();
  Progress progress(o.fit.epochs, batches, shown);
  TrainerResult result{.epochs_behind = o.fit.first_epoch};
  EpochRow last;
  bool ends = false;
  Checkpoints checkpoints(net, optimizer, world, hooks, o, result);
  const auto& begin = o.fit.begin;
  checkpoints.write_first({.step = optimizer.steps(),
                           .epoch = o.fit.first_epoch,
                           .epoch_step = begin.steps,
                           .epoch_steps = begin.steps > 0 ? steps : 0,
                           .epoch_loss = begin.loss.sum(),
                           .epoch_samples = begin.loss.weight()});
  auto fit_options = o.fit;
  if (checkpoints.within_epochs()) {
    fit_options.interrupts = [&](std::int64_t epoch, std::int64_t behind) { return checkpoints.due(epoch * steps + behind); };
    fit_options.interrupt = [&](std::int64_t epoch, const EpochPosition& at) {
      return checkpoints.write({.step = optimizer.steps(),
                                .epoch = epoch,
                                .epoch_step = at.steps,
                                .epoch_steps = steps,
                                .epoch_loss = at.loss.sum(),
                                .epoch_samples = at.loss.weight()});
    };
  }
  fit_options.progress = &progress;
  fit_options.times = &result.times;
  checkpoints.on_report([&] {
    const auto table = straggler_table(result.times, world);
    if (!table.empty()) progress.print(table.substr(0, table.size() - 1));
  });
  fit_options.after_epoch = [&](EpochReport report) {
    report.steps += first_step - o.fit.first_epoch * steps;
    result.seconds += report.seconds;
    result.samples += report.seconds * report.samples_per_second;
    result.waiting_seconds += report.waiting_seconds;
    result.epochs_behind = report.epoch + 1;
    if (o.fit.averages) o.fit.averages->swap();
    last = {report, hooks.evaluate ? hooks.evaluate() : std::vector<double>()};
    together(world, [&] { log->add(report, last.values); });
    const CheckpointInfo behind{.step = optimizer.steps(), .epoch = report.epoch + 1, .notes = o.notes};
    if (stopping.note(last) && o.keep_best) checkpoints.write_best(behind);
    if (o.fit.averages) o.fit.averages->swap();
    ends = checkpoints.after_epoch(behind, behind.epoch * steps);
    if (hooks.after_epoch) hooks.after_epoch(last);
    return hooks.text ? hooks.text(last) : text_of(o.values, last.values);
  };
  fit_options.stop = [&](const EpochReport&) {
    if (!ends) result.stopped = stopping.reason(last);
    return !result.stopped.empty();
  };
  if (o.fit.first_epoch < o.fit.epochs) epochs(fit_options);
  if (!result.interrupted && result.epochs_behind > o.fit.first_epoch)
    checkpoints.write_end({.step = optimizer.steps(), .epoch = result.epochs_behind});
  checkpoints.finish();
  if (world.size() > 1 && result.times.steps > 0) result.stragglers = straggler_table(result.times, world);
  result.epochs = log->rows();
  if (result.epochs_behind == o.fit.epochs) result.stopped.clear(), result.interrupted = false;
  return result;
}

}  // namespace

std::int64_t steps_before(const Optimizer& optimizer, const FitOptions& fit, std::int64_t steps) {
  if (fit.first_epoch == 0) return 0;
  const auto taken = optimizer.steps() + (fit.loss_scale ? fit.loss_scale->skipped() : 0) - fit.begin.steps;
  return std::max(fit.first_epoch * steps, taken);
}

TrainerResult train(nn::Module& net, Optimizer& optimizer, const data::Loader& loader, const Communicator& world,
                    const TrainerHooks& hooks, const TrainerOptions& o) {
  require(hooks.loss != nullptr, "[training] there is no loss");
  const auto steps = optimizer_steps(loader, o.fit.accumulate);
  return train_epochs(net, optimizer, steps, steps * o.fit.accumulate, world, hooks, o,
                      [&](const FitOptions& options) { fit(net, optimizer, loader, hooks.loss, world, options); });
}

TrainerResult train(nn::Module& net, Optimizer& optimizer, std::int64_t steps, const Communicator& world,
                    const TrainerHooks& hooks, const TrainerOptions& o) {
  require(hooks.epoch != nullptr, "[training] there is no epoch");
  require(o.fit.begin.steps >= 0 && o.fit.begin.steps < std::max<std::int64_t>(steps, 1),
          "[training] training is resumed after {} steps of an epoch that has {}", o.fit.begin.steps, steps);
  return train_epochs(net, optimizer, steps, steps, world, hooks, o, [&](FitOptions options) {
    for (auto epoch = options.first_epoch; epoch < options.epochs; ++epoch) {
      options.progress->begin_epoch(epoch, options.begin.steps);
      const auto report = hooks.epoch(epoch, options, optimizer);
      if (!report) return;
      options.begin = {};
      std::string text;
      {
        const detail::SlowPhase phase;  // evaluation and files
        text = options.after_epoch(*report);
      }
      options.progress->end_epoch(text);
      if (options.stop(*report)) break;
    }
  });
}

}  // namespace mpigrad
