#pragma once
// What a training that goes on from a checkpoint does otherwise than the one that wrote it.

#include <cstdint>
#include <map>
#include <string>

#include "examples/trainer/options.h"

namespace mpigrad::trainer {

using Notes = std::map<std::string, std::string>;

// What was asked for of the schedule, the optimizer and augmentation, for checkpoints to keep; `steps` of an epoch.
Notes option_notes(const Options& options, std::int64_t steps);

// UsageError, unless --allow-changes is given: the learning rate or its schedule differ, so that the place in the schedule means
// something else.
void refuse_changes(const Options& options, const std::string& file, const Notes& before, const Notes& now);
// What else differs, a line each, on standard error; and what the file does not know.
void list_changes(const std::string& file, const Notes& before, const Notes& now);

}  // namespace mpigrad::trainer
