#pragma once
// Where a training starts: from new weights, those of a file, or a checkpoint.

#include <cstdint>
#include <string>
#include <vector>

#include "models/trainer/run.h"

namespace mpigrad::trainer {

// Whether a run may replace the files of the one before: as --overwrite says, or because it goes on with that.
bool replaces(const Options& options);
// Seconds in which a run that is just ending may leave --out: a --resume may come right after a kill.
inline double patience_of(const Options& options) { return options.resume.empty() ? 0 : 5; }
// Weights or a checkpoint to start from, if asked for. Of a folder the newest one that is whole; why others are skipped is said.
// Refuses a checkpoint if one of the notes named in `decisive` differs from that of this run, in that order, or the schedule
// (changes.h), and warns where others do, and one with averaged weights where `averages` is null, or without them where it is
// not. One with all epochs behind it is taken: its run may have ended before the files that come last were written.
Start start_from_files(const Options& options, const Communicator& world, nn::Module& net, Optimizer& optimizer,
                       AveragedWeights* averages, LossScale* loss_scale, std::int64_t steps, const Notes& notes,
                       const std::vector<std::string>& decisive);

}  // namespace mpigrad::trainer
