#include "models/trainer/contrastive/evaluation.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/evaluate/embeddings.h"
#include "models/trainer/contrastive/encode.h"
#include "models/trainer/contrastive/samples.h"
#include "models/trainer/run.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad::contrast {
namespace {

std::vector<std::int64_t> chosen(const std::vector<std::int64_t>& all, const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> result;
  for (const auto sample : samples) result.push_back(all[static_cast<std::size_t>(sample)]);
  return result;
}

Tensor integers(const std::vector<std::int64_t>& values) {
  const std::vector<double> numbers(values.begin(), values.end());
  return from_vector({static_cast<std::int64_t>(values.size())}, numbers, DType::int64);
}

contrastive::Labelled labelled(const FeatureSet& set, const Communicator& world) {
  return {part_of(set.z, world), part_of(integers(set.labels), world)};
}

// Scores that compare directions need nonzero features.
void require_directions(const FeatureSet& set) {
  const auto squares = sum(square(cast(set.z, DType::float64)), {1}).to_vector();
  for (std::size_t i = 0; i < squares.size(); ++i) {
    const auto name = [&] { return set.source->name_of_sample(set.samples[i]); };
    require(std::isfinite(squares[i]), "[contrastive] the feature vector of {} is not finite", name());
    require(squares[i] > 1e-24,
            "[contrastive] the feature vector of {} is zero and has no direction; --metrics probe does without", name());
  }
}

std::int64_t classes_of(const FeatureSet& train, const FeatureSet& test) {
  std::int64_t most = 0;
  for (const auto* set : {&train, &test})
    for (const auto label : set->labels) {
      require(label >= 0 && label < 100000, "[contrastive] the probe's classes count from 0, a label is {}", label);
      most = std::max(most, label);
    }
  return most + 1;
}

Results scores_of(const EvaluateOptions& o, const EvaluationPlan& plan, const FeatureSet& train, const FeatureSet& test,
                  const Communicator& world) {
  Results results;
  const auto add = [&](const std::string& name, double value) { results.emplace_back(name, value); };
  if (plan.knn)
    add("neighbour_accuracy",
        contrastive::neighbour_accuracy(labelled(test, world), labelled(train, world), world, {.neighbours = o.neighbours}));
  if (plan.probe) {
    const auto classes = classes_of(train, test);
    const auto probe = contrastive::train_probe(labelled(train, world), world, {.classes = classes, .decay = o.decay});
    add("probe_accuracy", contrastive::probe_accuracy(probe, labelled(test, world), world));
    const std::set<std::int64_t> kinds(test.labels.begin(), test.labels.end());
    if (classes == 2 && kinds.size() == 2) add("probe_auc", contrastive::probe_auc(probe, labelled(test, world), world));
  }
  if (plan.retrieval) {
    const std::vector<std::int64_t> k{1, 5, 10};
    const auto recall = contrastive::label_recall(labelled(test, world), world, k);
    for (std::size_t i = 0; i < k.size(); ++i) add(fmt::format("retrieval_at_{}", k[i]), recall[i]);
  }
  if (plan.few_shot) {
    const auto groups = o.group.empty() ? Tensor() : part_of(integers(test.groups), world);
    const auto found = contrastive::few_shot(
        labelled(test, world), groups, world,
        {.ways = o.ways, .shots = o.few_shot[0], .queries = o.few_shot[1], .episodes = o.episodes, .seed = o.seed});
    add("few_shot_accuracy", found.accuracy), add("few_shot_standard_error", found.standard_error);
  }
  return results;
}

}  // namespace

void open_sets(const EvaluateOptions& o, FeatureSet& train, FeatureSet& test) {
  train.source = open(o.source);
  auto parts = o.source;
  const bool separate = !o.test_data.empty() || !o.test_part.empty();
  if (!separate && parts.test_fraction == 0 && parts.test_where.empty()) parts.test_fraction = 0.2;
  const auto both = split(*train.source, parts);
  train.samples = both.train;
  test.source = separate ? open(o.source, o.test_data.empty() ? o.source.data : o.test_data, o.test_part) : train.source;
  test.samples = both.test;
  if (separate) {
    auto only = o.source;
    only.test_fraction = 0, only.test_where.clear();
    test.samples = split(*test.source, only).train;
  }
  if (!has_labels(*train.source) || !separate) require_label(*test.source, o.source.label);
  for (auto* set : {&train, &test}) {
    if (!has_labels(*set->source)) continue;
    set->labels = chosen(labels_of(*set->source, o.source.label, "--label"), set->samples);
    if (!o.group.empty()) set->groups = chosen(labels_of(*set->source, o.group, "--group"), set->samples);
  }
}

EvaluationPlan plan_of(const EvaluateOptions& o, const FeatureSet& train, const FeatureSet& test) {
  const auto asked = [&](const char* name) { return std::find(o.metrics.begin(), o.metrics.end(), name) != o.metrics.end(); };
  const bool all = o.metrics.empty();
  EvaluationPlan plan{.knn = asked("knn"),
                      .probe = asked("probe"),
                      .retrieval = asked("retrieval"),
                      .geometry = all || asked("geometry"),
                      .few_shot = !o.few_shot.empty()};
  if (all) {
    // Test samples of classes that the training set lacks cannot be predicted.
    const std::set<std::int64_t> known(train.labels.begin(), train.labels.end());
    const bool shared = std::any_of(test.labels.begin(), test.labels.end(), [&](auto label) { return known.contains(label); });
    plan.knn = plan.probe = !train.samples.empty() && (shared || !test.labelled());
    plan.retrieval = true;
  }
  require(test.labelled() || !(plan.learns() || plan.retrieval || plan.few_shot),
          "[contrastive] evaluation needs labels, and the samples of {} have none: --labels NAME=FILE gives them, --metrics "
          "geometry does without",
          test.source->name_of_sample(0));
  if (plan.learns())
    require(!train.samples.empty() && train.labelled(),
            "[contrastive] knn and probe need labelled samples that are not in the test");
  return plan;
}

Results measure(const EvaluateOptions& o, const EvaluationPlan& plan, const FeatureSet& train, const FeatureSet& test,
                const Tensors& pairs, const Communicator& world) {
  UseDevice cpu(DeviceKind::cpu);
  Untaped scope;
  Results results;
  trainer::together(world, [&] {
    if (plan.learns()) require_finite_embeddings(train.z, *train.source, train.samples);
    require_finite_embeddings(test.z, *test.source, test.samples);
    if (plan.knn) require_directions(train);
    if (plan.knn || plan.retrieval || plan.few_shot || plan.geometry) require_directions(test);
    results = scores_of(o, plan, train, test, world);
  });
  const auto add = [&](const std::string& name, double value) { results.emplace_back(name, value); };
  if (plan.geometry) {
    if (!pairs.empty()) add("alignment", contrastive::alignment(part_of(pairs[0], world), part_of(pairs[1], world), world));
    add("uniformity", contrastive::uniformity(part_of(test.z, world), world));
    const auto collapse = contrastive::collapse(part_of(test.z, world), world);
    add("deviation", collapse.mean_deviation), add("effective_rank", collapse.effective_rank);
  }
  return results;
}

}  // namespace mpigrad::contrast
