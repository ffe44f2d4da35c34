#pragma once
// When a training writes checkpoints, which of them stay, and when it ends to be gone on from.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "models/train/checkpoint/checkpoint.h"
#include "models/train/restart/checkpoint_saver.h"
#include "models/train/restart/interruption.h"
#include "models/train/restart/local_copies.h"
#include "models/train/trainer.h"

namespace mpigrad {

// Of one training; all calls are collective.
class Checkpoints {
 public:
  Checkpoints(nn::Module& net, Optimizer& optimizer, const Communicator& world, const TrainerHooks& hooks,
              const TrainerOptions& options, TrainerResult& result);

  // What is done where a signal asks for a report.
  void on_report(std::function<void()> report) { report_ = std::move(report); }
  // Before the first step, if asked for. It is neither counted nor timed: no step waits for it.
  void write_first(CheckpointInfo info);
  // When all epochs are over, if asked for and not written yet.
  void write_end(CheckpointInfo info);
  // Whether there may be any between the steps of an epoch.
  bool within_epochs() const { return o_.checkpoint_steps > 0 || o_.local_steps > 0 || asks(); }
  // Between two steps, of which `step` are behind: whether write() is to be called.
  bool due(std::int64_t step);
  // Whether training ends.
  bool write(CheckpointInfo info);
  // Behind an epoch, with as many steps: writes if that is due. Whether training ends.
  bool after_epoch(const CheckpointInfo& info, std::int64_t step);
  // Waits until what was begun is durable.
  void finish();
  // Weights of the best epoch so far.
  void write_best(const CheckpointInfo& info);

 private:
  using Clock = std::chrono::steady_clock;
  enum Reason : std::int64_t { nothing, report, checkpoint, limit, signal };

  bool asks() const { return signals_ || o_.time_limit > 0 || o_.checkpoint_seconds > 0; }
  Reason reason() const;
  // f, while the network has what the hooks add to it.
  void with_state(const std::function<void()>& f) const;
  void reserve(CheckpointSaver& saver) const;
  SaveOptions with_all(CheckpointInfo info) const;
  void save(CheckpointInfo info, bool last);
  void warn_of_local(const std::function<void()>& f) const;
  bool local_due(std::int64_t step);
  void save_locally(CheckpointInfo info, std::int64_t step);
  void count_durable();
  // wanted_ but for a report, which is made.
  void note_wanted(std::int64_t all);
  bool ends();

  nn::Module& net_;
  Optimizer& optimizer_;
  const Communicator& world_;
  const TrainerHooks& hooks_;
  const TrainerOptions& o_;
  TrainerResult& result_;
  DeferredMax requests_;
  std::optional<NotedSignals> signals_;
  std::function<void()> report_{};
  std::int64_t wanted_ = nothing;
  Clock::time_point saved_ = Clock::now();
  std::int64_t saved_epoch_ = -1;    // of the last in this run
  bool staged_ = false;              // and not known to be durable
  std::atomic<double> slowest_ = 0;  // seconds until one was durable
  std::optional<Clock::time_point> last_step_;
  double longest_step_ = 0;               // seconds
  std::int64_t step_ = 0;                 // that due() was asked about
  std::optional<std::int64_t> copied_{};  // the step before the first, or of the last local copy
  std::optional<CheckpointSaver> saver_;  // ends first; none: training waits
  std::optional<LocalCopies> local_;
  std::optional<CheckpointSaver> local_saver_;  // before what its thread uses
};

}  // namespace mpigrad
