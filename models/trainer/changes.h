#pragma once
// Differences between the options of a training that goes on from a checkpoint and those of the training that wrote it.

#include <cstdint>
#include <map>
#include <string>

#include "models/trainer/options.h"

namespace mpigrad::trainer {

using Notes = std::map<std::string, std::string>;

// The note of the last part of the data's path.
inline constexpr const char* data_note = "data";
// Notes that tell of the data by number and names. They decide only where a file is older than notes of contents.
bool is_data_note(const std::string& name);

// Notes of a checkpoint: the options of schedule, optimizer and augmentation, where an epoch has so many steps.
Notes option_notes(const Options& options, std::int64_t steps);

// UsageError, unless checkpoint.allow_changes is set: the learning rate or its schedule differ, so that the place in the schedule
// means something else.
void refuse_changes(const Options& options, const std::string& file, const Notes& before, const Notes& now);
// Prints the other differences, a line each, on standard error; one line where the file knows no options.
void list_changes(const std::string& file, const Notes& before, const Notes& now);

}  // namespace mpigrad::trainer
