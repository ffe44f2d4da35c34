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

// Samples of one side of a split (training or test), and their features.
struct FeatureSet {
  data::SourcePtr source{};
  std::vector<std::int64_t> samples{}, labels{}, groups{};  // labels, groups: one for each sample, or none
  Tensor z{};                                               // [samples, width], the same on every rank, in CPU memory

  bool labelled() const { return !labels.empty(); }
};
// Opens both sides, without features. Samples that data.where selects are for training, the others for the test; if a test file
// or part is given, the test is all of that. Errors: those of split() and labels_of().
void open_sets(const EvaluateOptions& options, FeatureSet& train, FeatureSet& test);

// The scores to compute.
struct EvaluationPlan {
  bool knn = false, probe = false, retrieval = false, geometry = false, few_shot = false;

  bool learns() const { return knn || probe; }  // needs the training set
};
// The scores that evaluation.metrics names; if it is empty, all that the samples allow. Errors: missing labels.
EvaluationPlan plan_of(const EvaluateOptions& options, const FeatureSet& train, const FeatureSet& test);

using Results = std::vector<std::pair<std::string, double>>;
// Computes the planned scores, by name. `pairs`: features of two random views of each test sample, or none. Errors, with the name
// of the sample: features that are not finite, or zero where directions are compared. Collective.
Results measure(const EvaluateOptions& options, const EvaluationPlan& plan, const FeatureSet& train, const FeatureSet& test,
                const Tensors& pairs, const Communicator& world);

// Draws eight test samples with their eight nearest neighbours (frames mark those of the same label), and all test samples along
// their first two principal axes. Labels may be missing. Collective; rank 0 writes.
void draw(const std::filesystem::path& path, const FeatureSet& test, const Communicator& world);

// Coordinates [n, 2] along the two principal axes of the rows of z, by power iteration.
std::vector<double> principal_plane(const Tensor& z);

}  // namespace mpigrad::contrast
