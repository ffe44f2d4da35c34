#pragma once
// A whole training: epochs, evaluation after each epoch, table and curves, checkpoints, and stopping criteria. Programs of
// mpigrad_trainer set the same TrainerOptions by keys (models/README.md says which function is for which program).

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/train/restart/training_name.h"
#include "models/train/stragglers.h"
#include "models/train/training.h"
#include "models/train/training_log.h"

namespace mpigrad {

// Callbacks of a run. All except the loss (or `epoch`) are optional; all are called on all ranks.
struct TrainerHooks {
  LossFunction loss{};
  // For training runs that do not compare predictions with targets: runs one epoch, in place of fit(). It begins at
  // options.begin, takes learning rate, limit of the gradients' norm and loss scale from `options`, reports its steps to
  // options.progress and options.times, updates options.averages if set, calls options.after_step after each step, and asks
  // options.interrupts between steps. Returns nothing if options.interrupt has ended it.
  std::function<std::optional<EpochReport>(std::int64_t epoch, const FitOptions& options, Optimizer& optimizer)> epoch{};
  // Called after every epoch: returns the values of TrainerOptions::values. With averaged weights (FitOptions::averages) the
  // parameters have the averaged values during the call.
  std::function<std::vector<double>()> evaluate{};
  // The text that the progress line shows after the loss of the epoch; none: each value with its name.
  std::function<std::string(const EpochRow&)> text{};
  // Called after every epoch: for pictures and further files.
  std::function<void(const EpochRow&)> after_epoch{};
  // Called before and after the tensors of a checkpoint are copied or written, so that the network has all of them.
  std::function<void()> before_checkpoint{}, after_checkpoint{};
  // Returns another reason to end after an epoch, the same on all ranks; empty: none.
  std::function<std::string(const EpochRow&)> stop{};
};

struct TrainerOptions {
  FitOptions fit{};  // except progress, after_epoch and stop, which the trainer sets
  // For metrics.csv, TensorBoard events and checkpoint.h5; created if it does not exist. Empty: no files are written.
  std::filesystem::path folder{};
  std::vector<std::string> values{};
  bool replaces = false;  // removes TensorBoard events of earlier runs
  // Intervals between checkpoints in epochs, steps, minutes; 0: no such checkpoints. The clock of rank 0 counts minutes, and such
  // a checkpoint comes one step late.
  std::int64_t checkpoint_every = 0, checkpoint_steps = 0;
  double checkpoint_minutes = 0;
  // Also one before the first step, so that a training run that fails at any time can be restarted from its files; and one at the
  // end, if the last one is older, so that completed epochs are not trained again.
  bool checkpoint_first = false, checkpoint_end = false;
  // Whether training waits while a checkpoint is written. Otherwise rank 0 keeps a copy of the tensors meanwhile, and a
  // checkpoint that is due before the previous one is on the disk is skipped. The last one of a training run, also of one ended
  // by a limit or a signal, is always waited for.
  bool wait_for_checkpoints = false;
  std::int64_t keep = 1;   // number of checkpoints to keep: checkpoint.h5, and older ones as checkpoint-STEP.h5
  bool keep_best = false;  // best.h5: only weights (averaged ones if any), of the epoch with the best `monitor`
  // A copy every `local_steps` steps on the disks of two nodes (models/train/restart/local_copies.h); 0: none. `local_folder`: a
  // folder on a disk of each node, in which the training has a folder of its own.
  std::filesystem::path local_folder{};
  TrainingName local_training{};  // each copy updates the modification time of its file, if there is one
  std::int64_t local_steps = 0;
  // Ends the training with a checkpoint, between two steps if possible: early enough that the checkpoint is written within
  // `time_limit_minutes` of `started` (0: no limit), or when a signal arrives (models/train/restart/interruption.h).
  double time_limit_minutes = 0;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  bool notes_signals = false;                  // SIGUSR2 to any rank prints the table of models/train/stragglers.h
  std::map<std::string, std::string> notes{};  // stored in checkpoints
  // Early stopping: ends after `patience` epochs in a row without a new minimum (or maximum) of `monitor`, one of the values or
  // train_loss. 0: never.
  std::int64_t patience = 0;
  std::string monitor = "train_loss";
  bool larger_is_better = false;
  double most_minutes = 0;     // begins no epoch after this time, by rank 0's clock; 0: no limit
  ProgressOptions progress{};  // only rank 0 of `world` prints
};

struct TrainerResult {
  std::vector<EpochRow> epochs{};   // on rank 0 including epochs of earlier runs kept in metrics.csv
  std::int64_t epochs_behind = 0;   // number of epochs that the weights have completed
  double seconds = 0, samples = 0;  // of this run's epochs, without evaluation
  double waiting_seconds = 0;       // of these, waiting for batches
  std::string stopped{};            // why it ended before its last epoch; else empty
  bool interrupted = false;         // ended by a limit or a signal: resume from the newest checkpoint
  std::int64_t checkpoints = 0, skipped_checkpoints = 0, local_copies = 0;
  double checkpoint_seconds = 0, slowest_checkpoint = 0;  // for which training waited
  RankTimes times{};                                      // of this rank, in steps of this run
  std::string stragglers{};                               // on rank 0 of several, the table of stragglers
};

// The steps of the optimizer before the epoch fit.first_epoch, as reports and TensorBoard's curves count them: those of earlier
// epochs as long as this one, with `steps` steps each, or as many as a resumed optimizer has taken if these are more because the
// batch was smaller. So curves never go back.
std::int64_t steps_before(const Optimizer& optimizer, const FitOptions& fit, std::int64_t steps);

// Collective. Files of an earlier run in the folder are replaced, but rows of epochs before fit.first_epoch are kept; early
// stopping uses the values of rank 0. Errors: those of fit(); on all ranks, files that cannot be written.
TrainerResult train(nn::Module& net, Optimizer& optimizer, const data::Loader& loader, const Communicator& world,
                    const TrainerHooks& hooks, const TrainerOptions& options);
// The same for training runs with hooks.epoch, where an epoch has `steps` steps. hooks.epoch receives options.fit. Of
// options.fit, train() itself reads only epochs, first_epoch, begin, averages and loss_scale; checkpoints store the last two.
TrainerResult train(nn::Module& net, Optimizer& optimizer, std::int64_t steps, const Communicator& world,
                    const TrainerHooks& hooks, const TrainerOptions& options);

}  // namespace mpigrad
