#pragma once
// Checkpoint policy: when to write, which to keep, when to stop so that the run can be resumed.

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

// The checkpoints of one training; all calls are collective.
class Checkpoints {
 public:
  Checkpoints(nn::Module& net, Optimizer& optimizer, const Communicator& world, const TrainerHooks& hooks,
              const TrainerOptions& options, TrainerResult& result);

  // The function to call when a signal asks for a report.
  void on_report(std::function<void()> report) { report_ = std::move(report); }
  // Writes a checkpoint before the first step, if options ask for it. It is neither counted nor timed: no step waits for it.
  void write_first(CheckpointInfo info);
  // Writes a checkpoint after all epochs, if options ask for it and it has not been written.
  void write_end(CheckpointInfo info);
  // Whether checkpoints between the steps of an epoch are possible.
  bool within_epochs() const { return o_.checkpoint_steps > 0 || o_.local_steps > 0 || asks(); }
  // Called between two steps, after `step` steps; returns whether write() is to be called.
  bool due(std::int64_t step);
  // Writes the checkpoint or local copy that is due. Returns whether training ends.
  bool write(CheckpointInfo info);
  // Called after an epoch, after `step` steps; writes a checkpoint or local copy if due. Returns whether training ends.
  bool after_epoch(const CheckpointInfo& info, std::int64_t step);
  // Waits until the checkpoint in progress is durable.
  void finish();
  // Writes the weights of the best epoch so far.
  void write_best(const CheckpointInfo& info);

 private:
  using Clock = std::chrono::steady_clock;
  enum Reason : std::int64_t { nothing, report, checkpoint, limit, signal };

  bool asks() const { return notes_signals_ || o_.time_limit_minutes > 0 || o_.checkpoint_minutes > 0; }
  Reason reason() const;
  // Runs f between the hooks before_checkpoint and after_checkpoint.
  void with_state(const std::function<void()>& f) const;
  void reserve(CheckpointSaver& saver) const;
  SaveOptions with_all(CheckpointInfo info) const;
  void save(CheckpointInfo info, bool last);
  void warn_of_local(const std::function<void()>& f) const;
  bool local_due(std::int64_t step);
  void save_locally(CheckpointInfo info, std::int64_t step);
  void count_durable();
  // Sets wanted_; makes a report if one is wanted.
  void note_wanted(std::int64_t all);
  bool ends();

  nn::Module& net_;
  Optimizer& optimizer_;
  const Communicator& world_;
  const TrainerHooks& hooks_;
  const TrainerOptions& o_;
  TrainerResult& result_;
  DeferredMax requests_;
  const bool notes_signals_ = o_.notes_signals && !o_.folder.empty();
  std::function<void()> report_{};
  std::int64_t wanted_ = nothing;
  Clock::time_point saved_ = Clock::now();
  std::int64_t saved_epoch_ = -1;    // of the last checkpoint in this run
  bool staged_ = false;              // a checkpoint is staged and not known to be durable
  std::atomic<double> slowest_ = 0;  // seconds until a checkpoint was durable, the maximum
  std::optional<Clock::time_point> last_step_;
  double longest_step_ = 0;               // seconds
  std::int64_t step_ = 0;                 // the last argument of due()
  std::optional<std::int64_t> copied_{};  // the step before the first, or of the last local copy
  std::optional<CheckpointSaver> saver_;  // destroyed first; none: training waits for writing
  std::optional<LocalCopies> local_;
  std::optional<CheckpointSaver> local_saver_;  // destroyed before the objects that its thread uses
};

}  // namespace mpigrad
