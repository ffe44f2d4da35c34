#pragma once
// The targets of a program's samples: a class or a row of numbers for each sample.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/mpigrad/trainer.h"
#include "models/trainer/run.h"
#include "models/trainer/samples.h"

namespace mpigrad::trainer::program {

// The targets of all samples of a source. Numbers that are used as stored are not read here.
struct Targets {
  bool as_stored = false;
  std::vector<std::int64_t> labels{};  // classes
  TargetRows rows{};                   // numbers, unless as_stored
};
// The targets that a training learns, as data.label and data.targets say; fills in the problem's targets, their number (0 for
// classes) and names. Error: the samples have no targets, or of another kind than the program's.
Targets learned_targets(const Program& program, const data::Source& source, const SampleOptions& options, Problem& problem);
// The targets of other samples, in the problem's order. Classes and numbers are matched by name if both sides have names; a
// single number matches whatever its name. Error: missing classes or numbers.
Targets targets_like(const Problem& problem, const data::Source& source, const SampleOptions& options);

// Some samples of a source with their targets, standardised where the problem has means and deviations.
struct Learned {
  data::SourcePtr source{};
  std::vector<std::int64_t> samples{};  // their numbers in that source
};
Learned learned(const Problem& problem, const data::SourcePtr& source, const Targets& targets, std::vector<std::int64_t> samples);
// Sets the problem's means and deviations to those of some rows (deviation 1 for a target that does not vary).
void standardise(Problem& problem, const TargetRows& rows, const std::vector<std::int64_t>& samples);
// Converts outputs of the network to the units of the data.
void restore_units(const Problem& problem, std::vector<double>& values);

// How often each class occurs among `samples`. Error: a negative class, or more than 10,000 classes.
std::vector<std::int64_t> count_classes(const data::Source& source, const std::vector<std::int64_t>& samples);
double majority_of(const std::vector<std::int64_t>& counts);

// The prediction made without looking at a sample: the mean of each target; and the targets' units.
struct TargetMeans {
  std::vector<std::string> names{};
  std::vector<double> means{};            // one for each name
  std::vector<double> offset{}, scale{};  // number in physical units = offset + scale * number; empty: not known
};
// Means over `samples` of `source`, the training's samples, in the units of the data; the ranks share the reading. Physical units
// are those of data::UniverseSource. Collective.
TargetMeans means_of(const Communicator& world, const Problem& problem, const data::Source& source,
                     const std::vector<std::int64_t>& samples);
inline constexpr const char* means_note = "target means";
std::string to_note(const TargetMeans& means);
// None: the weights have no such note. Error: a note that to_note did not write.
std::optional<TargetMeans> means_of(const std::string& weights, const CheckpointInfo& info);

}  // namespace mpigrad::trainer::program
