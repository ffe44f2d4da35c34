#pragma once
// What the samples of a program are to predict: a class or a row of numbers each.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/mpigrad/trainer.h"
#include "models/trainer/run.h"
#include "models/trainer/samples.h"

namespace mpigrad::trainer::program {

// The targets of all samples of a source. Numbers that are used as the source has them are not read.
struct Targets {
  bool as_stored = false;
  std::vector<std::int64_t> labels{};  // of classes
  TargetRows rows{};                   // of numbers, unless as_stored
};
// Those that a training learns, as data.label and data.targets say; fills in the problem's targets, their number (of classes 0)
// and names. Error: the samples have none, or those are of another kind than the program's.
Targets learned_targets(const Program& program, const data::Source& source, const SampleOptions& options, Problem& problem);
// Those of other samples, in the problem's order. Classes are found by their names where both have some, numbers by theirs; one
// number whatever its name. Error: classes or numbers that are not there.
Targets targets_like(const Problem& problem, const data::Source& source, const SampleOptions& options);

// Some samples of a source with their targets, standardised where the problem has means and deviations.
struct Learned {
  data::SourcePtr source{};
  std::vector<std::int64_t> samples{};  // of that source
};
Learned learned(const Problem& problem, const data::SourcePtr& source, const Targets& targets, std::vector<std::int64_t> samples);
// The means and deviations of some rows (1 for a target that does not vary) become the problem's.
void standardise(Problem& problem, const TargetRows& rows, const std::vector<std::int64_t>& samples);
// From outputs of the network to the units of the data.
void restore_units(const Problem& problem, std::vector<double>& values);

// How often each class occurs among some samples. Error: negative classes, or more than 10,000.
std::vector<std::int64_t> count_classes(const data::Source& source, const std::vector<std::int64_t>& samples);
double majority_of(const std::vector<std::int64_t>& counts);

// What someone predicts who has seen no sample, and what the numbers mean.
struct TargetMeans {
  std::vector<std::string> names{};
  std::vector<double> means{};            // one for each name
  std::vector<double> offset{}, scale{};  // physical units are offset + scale number; none: not known
};
// Of the training's samples `samples` of `source`, in the units of the data; the ranks share the reading. Physical units are
// those of data::UniverseSource. Collective.
TargetMeans means_of(const Communicator& world, const Problem& problem, const data::Source& source,
                     const std::vector<std::int64_t>& samples);
inline constexpr const char* means_note = "target means";
std::string to_note(const TargetMeans& means);
// None: the weights have no such note. Error: a note that to_note did not write.
std::optional<TargetMeans> means_of(const std::string& weights, const CheckpointInfo& info);

}  // namespace mpigrad::trainer::program
