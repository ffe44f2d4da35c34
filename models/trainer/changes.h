#pragma once
// Differences between the options of a resumed training and those of the training that wrote the checkpoint.

#include <cstdint>
#include <map>
#include <string>

#include "models/trainer/options.h"

namespace mpigrad::trainer {

using Notes = std::map<std::string, std::string>;

// The note with the last part of the data's path.
inline constexpr const char* data_note = "data";
// True for notes that identify the data by number and names. They decide only if a file is older than notes of contents.
bool is_data_note(const std::string& name);

// Notes of a checkpoint: the options of schedule, optimizer and augmentation, for `steps` steps in an epoch.
Notes option_notes(const Options& options, std::int64_t steps);

// Throws UsageError if the learning rate or its schedule differ, because then the position in the schedule has another meaning.
// With checkpoint.allow_changes it does nothing.
void refuse_changes(const Options& options, const std::string& file, const Notes& before, const Notes& now);
// Prints the other differences, one a line, on standard error; one line if the file has no notes of options.
void list_changes(const std::string& file, const Notes& before, const Notes& now);

}  // namespace mpigrad::trainer
