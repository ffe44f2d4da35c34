#pragma once
// Samples of any format by the options that programs share; their labels and targets; subsets of them.

#include <cstdint>
#include <string>
#include <vector>

#include "models/data/data.h"
#include "models/trainer/options.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::trainer {

using tool::UsageError;

struct SampleOptions {
  std::string data, part;
  std::string volume = "volume", label_dataset = "label";  // datasets of HDF5 files
  std::vector<std::string> labels{};                       // NAME=FILE
  std::string targets;                                     // a table (CSV), see target_rows
  std::string stored;                                      // extents, see parse_extents
  int channels = 0, workers = 1;
  std::string label;  // the label to use; empty: the first
};
// Declares the keys of samples. `part`: data.PART selects one part of the data ("part", "group"); "": the program has other keys
// for that.
void add_sample_keys(Keys& keys, SampleOptions& options, const std::string& part = "part");
void add_worker_key(Keys& keys, SampleOptions& options);
void add_label_key(Keys& keys, SampleOptions& options);
// data.targets, for programs that predict numbers.
void add_target_key(Keys& keys, SampleOptions& options);

// Parses "32" and "32,48" (pictures) and "28,28,28" (volumes) to [D, H, W]; "": no extents. UsageError: anything else.
Shape parse_extents(const std::string& option, const std::string& text);

// Errors as of data::open_source.
data::SourcePtr open(const SampleOptions& options);
// With `targets` false, targets of HDF5 files may be missing.
data::SourcePtr open(const SampleOptions& options, const std::string& data, const std::string& part, bool targets = true);

// The labels called `name` of all samples; "": the first labels. Errors: there are no labels (the message says that `what` needs
// them), none of that name, or targets that are not classes.
std::vector<std::int64_t> labels_of(const data::Source& source, const std::string& name, const std::string& what);
bool has_labels(const data::Source& source);
// Error: there are no labels of the name that data.label gives.
void require_label(const data::Source& source, const std::string& name);
// The place of `name` among the source's labels; "" is 0. Error: no such name.
std::size_t label_index(const data::Source& source, const std::string& name);
// Names of the classes of a folder of folders, from class 0 on; empty for other sources, and if data.labels gave the classes.
std::vector<std::string> class_names(const data::Source& source, const SampleOptions& options);

// Targets that are numbers: a row for each sample.
struct TargetRows {
  std::vector<std::string> names{};  // empty: the source has no numbers
  std::vector<double> values{};      // [samples, names]
};
// The table data.targets; without it the source's own targets if they are rows of floating-point numbers. The table's first line
// names its columns; the first column is the sample's file (its name, or folder and name) or its number from 0, the others are
// targets. Rows of other files are ignored. Errors, with the table and the row: cells that are not finite numbers, numbers that
// no sample has, two rows for a sample, a sample without a row.
TargetRows target_rows(const data::Source& source, const SampleOptions& options);

// Sets how a training's batches are read and augmented: data.shifts, data.transpositions, data.store, data.read and data.ghosts.
// UsageError: data.read collective for samples in memory.
void set_reading(data::LoaderOptions& loader, const data::Source& source, const Options& options);

// All samples of a source, by number.
std::vector<std::int64_t> all_samples(const data::Source& source);
// Some samples of a source, renumbered in this order, each with one class; without targets if `classes` is empty.
data::SourcePtr chosen(data::SourcePtr source, std::vector<std::int64_t> samples, const std::string& label,
                       std::vector<std::int64_t> classes);
// The same with a row of numbers for each sample chosen.
data::SourcePtr chosen(data::SourcePtr source, std::vector<std::int64_t> samples, const TargetRows& targets);

}  // namespace mpigrad::trainer
