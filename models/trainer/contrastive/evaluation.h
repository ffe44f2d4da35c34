#pragma once
// Scores of features: nearest neighbours, a linear probe, retrieval, geometry and few-shot classification, of a training and a
// test set.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "models/data/source.h"
#include "models/trainer/contrastive/options.h"

namespace mpigrad::contrast {

// Samples of one side of a split, and their features.
struct FeatureSet {
  data::SourcePtr source{};
  std::vector<std::int64_t> samples{}, labels{}, groups{};  // labels and groups: of the samples, or none
  Tensor z{};                                               // [samples, width], the same on every rank, in CPU memory

  bool labelled() const { return !labels.empty(); }
};
// Opens both sides, without features: of the samples that data.where keeps those for training and those for the test; another
// file or part is the test as a whole. Errors: as of split() and labels_of().
void open_sets(const EvaluateOptions& options, FeatureSet& train, FeatureSet& test);

// The scores to compute.
struct EvaluationPlan {
  bool knn = false, probe = false, retrieval = false, geometry = false, few_shot = false;

  bool learns() const { return knn || probe; }  // from the training set
};
// The scores that evaluation.metrics names; without it all that the samples allow. Errors: labels that are missing.
EvaluationPlan plan_of(const EvaluateOptions& options, const FeatureSet& train, const FeatureSet& test);

using Results = std::vector<std::pair<std::string, double>>;
// The planned scores, by name. `pairs`: features of two random views of each test sample, or none. Errors: features that are not
// finite, or zero where directions are compared, by the name of their sample. Collective.
Results measure(const EvaluateOptions& options, const EvaluationPlan& plan, const FeatureSet& train, const FeatureSet& test,
                const Tensors& pairs, const Communicator& world);

// Pictures of eight test samples with their eight nearest others, those of the same label framed, and all of them along the two
// directions in which they differ most. Labels may be missing. Collective; rank 0 writes.
void draw(const std::filesystem::path& path, const FeatureSet& test, const Communicator& world);

// Coordinates [n, 2] along the two principal axes of the rows of z, by power iteration.
std::vector<double> principal_plane(const Tensor& z);

}  // namespace mpigrad::contrast
