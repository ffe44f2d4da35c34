#pragma once
// A whole training: epochs, what is measured after each of them, its table and curves, checkpoints, and when it ends.

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

// What a run adds. Everything but the loss, or the epoch, may be missing; all are called on all ranks.
struct TrainerHooks {
  LossFunction loss{};
  // Trainings that are not predictions beside targets: one epoch, as fit() has it. It begins at options.begin, tells its steps to
  // options.progress and options.times, updates options.averages if there are any, and asks options.interrupts between steps;
  // none where options.interrupt has ended it.
  std::function<std::optional<EpochReport>(std::int64_t epoch, const FitOptions& options)> epoch{};
  // After every epoch: the values of TrainerOptions::values. With averaged weights (FitOptions::averages) those are the
  // parameters' values meanwhile.
  std::function<std::vector<double>()> evaluate{};
  // What progress shows of the values after the epoch's loss; none: each value with its name.
  std::function<std::string(const EpochRow&)> text{};
  // Pictures, further files.
  std::function<void(const EpochRow&)> after_epoch{};
  // Around what copies or writes a checkpoint's tensors, so that the network has all of them then.
  std::function<void()> before_checkpoint{}, after_checkpoint{};
  // Another reason to end behind an epoch, the same on all ranks; empty: none.
  std::function<std::string(const EpochRow&)> stop{};
};

struct TrainerOptions {
  FitOptions fit{};  // but for what the trainer adds: progress, after_epoch and stop
  // For metrics.csv, events for TensorBoard and checkpoint.h5; made if it is missing. Empty: none of the files is written.
  std::filesystem::path folder{};
  std::vector<std::string> values{};
  bool replaces = false;  // takes out what earlier runs wrote for TensorBoard
  // A checkpoint after every so many epochs, steps, seconds; 0: not. Seconds are rank 0's, and such a checkpoint comes a step
  // late.
  std::int64_t checkpoint_every = 0, checkpoint_steps = 0;
  double checkpoint_seconds = 0;
  // One before the first step, too, so that a training that dies at any time can be begun again from its files; and one at the
  // end, if the last is older, so that epochs that are over are not trained again.
  bool checkpoint_first = false, checkpoint_end = false;
  // Whether training goes on while one is written, of which rank 0 keeps a copy meanwhile. One that is due before the last is on
  // the disk is skipped; the last of a training, or of one that a limit or a signal ends, is waited for.
  bool asynchronous = true;
  std::int64_t keep = 1;   // newest checkpoints: checkpoint.h5, and checkpoint-STEP.h5 of those before it
  bool keep_best = false;  // best.h5, weights alone (averaged ones where there are), of the epoch in which `monitor` was best
  // A copy every so many steps on the disks of two nodes (models/train/restart/local_copies.h), in this folder; 0: not.
  std::filesystem::path local_folder{};
  TrainingName local_training{};  // its file, if there is one, gets a new time with each copy
  std::int64_t local_steps = 0;
  // Ends with a checkpoint, between two steps where it can: so many seconds after `started`, early enough to write it (0: no
  // limit), and where a signal is noted (models/train/restart/interruption.h).
  double time_limit = 0;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  bool notes_signals = false;  // SIGUSR2, to any rank: prints which ranks keep others waiting (models/train/stragglers.h)
  std::map<std::string, std::string> notes{};  // that a checkpoint keeps
  // Early stopping: ends after `patience` epochs in a row in which `monitor`, one of the values or train_loss, was not lower (or
  // larger) than ever before. 0: never.
  std::int64_t patience = 0;
  std::string monitor = "train_loss";
  bool larger_is_better = false;
  double most_seconds = 0;     // begins no epoch after so long; 0: no limit. Rank 0's clock counts.
  ProgressOptions progress{};  // of the ranks of `world` only rank 0 prints
};

struct TrainerResult {
  std::vector<EpochRow> epochs{};   // on rank 0 those of earlier runs that metrics.csv has kept, too
  std::int64_t epochs_behind = 0;   // of the weights
  double seconds = 0, samples = 0;  // of this run's epochs, without what is measured after them
  double waiting_seconds = 0;       // of these, until batches were there
  std::string stopped{};            // why it ended before its last epoch; empty: it did not
  bool interrupted = false;         // by a limit or a signal: the newest checkpoint is to be gone on from
  std::int64_t checkpoints = 0, skipped_checkpoints = 0, local_copies = 0;
  double checkpoint_seconds = 0, slowest_checkpoint = 0;  // in which training stood still
  RankTimes times{};                                      // of this rank, in steps of this run
  std::string stragglers{};                               // on rank 0 of several, their table
};

// Collective. Files of an earlier run in the folder are replaced, but rows of epochs before fit.first_epoch stay; early stopping
// looks at what rank 0 measures. Errors: as fit(); files that cannot be written are an error of all ranks.
TrainerResult train(nn::Module& net, Optimizer& optimizer, const data::Loader& loader, const Communicator& world,
                    const TrainerHooks& hooks, const TrainerOptions& options);
// The same with hooks.epoch, of `steps` steps, to which options.fit is handed on; of it only epochs, first_epoch, begin and
// loss_scale (which checkpoints keep) count here.
TrainerResult train(nn::Module& net, Optimizer& optimizer, std::int64_t steps, const Communicator& world,
                    const TrainerHooks& hooks, const TrainerOptions& options);

}  // namespace mpigrad
