#pragma once
// Where a training starts: from new weights, those of a file, or a checkpoint.

#include <cstdint>
#include <string>
#include <vector>

#include "models/trainer/run.h"

namespace mpigrad::trainer {

// True if a run may replace the files of the previous run: with --overwrite or --resume.
bool replaces(const Options& options);
// Seconds to wait for a run that is just ending in --out: --resume may come right after a kill, and a killed process ends only
// when its last write to a slow file system has.
inline double patience_of(const Options& options) { return options.resume.empty() ? 0 : 30; }
// Loads the weights or the checkpoint to start from, if asked for; from a folder the newest complete one, printing why others are
// skipped. Refuses a checkpoint if the schedule (changes.h) or one of the notes named in `decisive` (in that order) differs from
// this run's, and warns if other notes differ. Also refuses one with averaged weights if `averages` is null, and one without if
// it is not. Accepts a checkpoint after the last epoch: its run may have ended before the files that come last were written.
Start start_from_files(const Options& options, const Communicator& world, nn::Module& net, Optimizer& optimizer,
                       AveragedWeights* averages, LossScale* loss_scale, std::int64_t steps, const Notes& notes,
                       const std::vector<std::string>& decisive);

}  // namespace mpigrad::trainer
