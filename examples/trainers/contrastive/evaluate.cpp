#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "examples/trainers/contrastive/contrastive.h"
#include "models/trainer/contrastive/encode.h"
#include "models/trainer/contrastive/evaluation.h"
#include "models/trainer/contrastive/samples.h"
#include "models/evaluate/embeddings.h"
#include "models/train/progress.h"
#include "models/trainer/data_check.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/run.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad::contrast {
namespace {

using contrastive::Labelled;

constexpr const char *picture_file = "evaluation.png", *results_file = "evaluation.json";

// One side of a split: samples of a source, what the network makes of them, and what they are.
struct Set {
  data::SourcePtr source;
  std::vector<std::int64_t> samples, labels, groups;  // labels and groups: of the samples, or none
  Tensor z;                                           // [samples, width], on every rank

  bool labelled() const { return !labels.empty(); }
};

std::vector<std::int64_t> chosen(const std::vector<std::int64_t>& all, const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> result;
  for (const auto sample : samples) result.push_back(all[static_cast<std::size_t>(sample)]);
  return result;
}

Tensor integers(const std::vector<std::int64_t>& values) {
  const std::vector<double> numbers(values.begin(), values.end());
  return from_vector({static_cast<std::int64_t>(values.size())}, numbers, DType::int64);
}

Labelled labelled(const Set& set, const Communicator& world) {
  return {part_of(set.z, world), part_of(integers(set.labels), world)};
}

// What is to be computed, and whether that is possible.
struct Plan {
  bool knn = false, probe = false, retrieval = false, geometry = false, few_shot = false;
};

Plan plan_of(const EvaluateOptions& o, const Set& train, const Set& test) {
  const auto asked = [&](const char* name) { return std::find(o.metrics.begin(), o.metrics.end(), name) != o.metrics.end(); };
  const bool all = o.metrics.empty();
  Plan plan{.knn = asked("knn"), .probe = asked("probe"), .retrieval = asked("retrieval"), .geometry = all || asked("geometry")};
  plan.few_shot = !o.few_shot.empty();
  if (all) {
    // Classes that only the test has are not to be predicted.
    const std::set<std::int64_t> known(train.labels.begin(), train.labels.end());
    const bool shared = std::any_of(test.labels.begin(), test.labels.end(), [&](auto label) { return known.contains(label); });
    plan.knn = plan.probe = !train.samples.empty() && (shared || !test.labelled());
    plan.retrieval = true;
  }
  require(test.labelled() || !(plan.knn || plan.probe || plan.retrieval || plan.few_shot),
          "[contrastive] evaluation needs labels, and the samples of {} have none: --labels NAME=FILE gives them, --metrics "
          "geometry does without",
          test.source->name_of_sample(0));
  if (plan.knn || plan.probe)
    require(!train.samples.empty() && train.labelled(),
            "[contrastive] knn and probe learn from labelled samples besides the test");
  return plan;
}

// Keeps data.where's samples; the whole of another file or part is the test.
void open_sets(const EvaluateOptions& o, Set& train, Set& test) {
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

// What compares directions needs all of them.
void require_directions(const Set& set) {
  const auto squares = sum(square(cast(set.z, DType::float64)), {1}).to_vector();
  for (std::size_t i = 0; i < squares.size(); ++i) {
    const auto name = [&] { return set.source->name_of_sample(set.samples[i]); };
    require(std::isfinite(squares[i]), "[contrastive] what is to be evaluated of {} is not finite", name());
    require(squares[i] > 1e-24,
            "[contrastive] what is to be evaluated of {} is zero and has no direction; --metrics probe does without", name());
  }
}

std::int64_t classes_of(const Set& train, const Set& test) {
  std::int64_t most = 0;
  for (const auto* set : {&train, &test})
    for (const auto label : set->labels) {
      require(label >= 0 && label < 100000, "[contrastive] the probe's classes count from 0, a label is {}", label);
      most = std::max(most, label);
    }
  return most + 1;
}

Results measure(const EvaluateOptions& o, const Plan& plan, const Set& train, const Set& test, const Communicator& world) {
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

int evaluate(const Communicator& world, const EvaluateOptions& o) {
  const auto start = std::chrono::steady_clock::now();
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  Loaded loaded;
  if (!o.weights.empty()) loaded = load_network(o.weights, world);
  Set train, test;
  Plan plan;
  trainer::together(world, [&] {
    open_sets(o, train, test);
    plan = plan_of(o, train, test);
    for (const auto* set : {&train, &test})
      if (!o.pixels) require_fitting(loaded.config, *set->source);
  });
  trainer::require_same_data(world, *train.source);
  if (test.source != train.source) trainer::require_same_data(world, *test.source);
  std::optional<trainer::Outputs> out;
  if (!o.out.empty()) out.emplace(world, o.out, std::vector<std::string>{picture_file, results_file}, o.overwrite);

  const auto size = parse_extents("data.size", o.source.size);
  const auto to = !o.pixels ? loaded.config.extents : size.rank() == 3 ? size : test.source->extents();
  EncodeAttributes encoding{.grid = make_grid(world, extents),
                            .batch = std::max<std::int64_t>(o.batch, world.size()),
                            .workers = o.source.workers,
                            .projected = o.projected,
                            .seed = o.seed};
  if (!o.pixels) trainer::require_same_geometry(world, o.weights, loaded.info, *test.source, test.samples);
  for (const auto* set : {&train, &test})
    if (is_floating(set->source->type()) && (set == &test || plan.knn || plan.probe))
      trainer::check_data(world, *set->source, set->samples, {});
  if (out) out->create(world);
  const auto features = [&](const Set& set, const augment::Recipe& recipe, int views) {
    auto at = encoding;
    at.recipe = recipe, at.views = views;
    return o.pixels ? pixels(set.source, set.samples, world, at) : encode(*loaded.net, set.source, set.samples, world, at);
  };
  if (plan.knn || plan.probe) train.z = features(train, plain_recipe(train.source->extents(), to), 1)[0];
  test.z = features(test, plain_recipe(test.source->extents(), to), 1)[0];
  Tensors pairs;
  if (plan.geometry && !o.pixels) pairs = features(test, parse_recipe(loaded.config.augment, to), 2);

  UseDevice cpu(DeviceKind::cpu);
  Untaped scope;
  Results results;
  trainer::together(world, [&] {
    if (plan.knn || plan.probe) require_finite_embeddings(train.z, *train.source, train.samples);
    require_finite_embeddings(test.z, *test.source, test.samples);
    if (plan.knn) require_directions(train);
    if (plan.knn || plan.retrieval || plan.few_shot || plan.geometry) require_directions(test);
    results = measure(o, plan, train, test, world);
  });
  if (plan.geometry) {
    if (!pairs.empty())
      results.emplace_back("alignment", contrastive::alignment(part_of(pairs[0], world), part_of(pairs[1], world), world));
    results.emplace_back("uniformity", contrastive::uniformity(part_of(test.z, world), world));
    const auto collapse = contrastive::collapse(part_of(test.z, world), world);
    results.emplace_back("deviation", collapse.mean_deviation);
    results.emplace_back("effective_rank", collapse.effective_rank);
  }
  if (out) draw(*out / picture_file, *test.source, test.samples, test.z, test.labels, world);
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    nlohmann::ordered_json document{{"program", "contrastive"},
                                    {"command", "evaluate"},
                                    {"weights", o.weights},
                                    {"training_samples", train.samples.size()},
                                    {"test_samples", test.samples.size()},
                                    {"width", test.z.dim(1)}};
    auto& numbers = document["results"] = nlohmann::ordered_json::object();
    for (const auto& [name, value] : results) numbers[name] = value;
    document["seconds"] = seconds;
    if (out) trainer::write_text(*out / results_file, tool::to_text(document) + "\n");
    if (o.json) {
      fmt::print("{}\n", tool::to_text(document));
      return;
    }
    fmt::print("{} test samples, {} others, width {}\n", test.samples.size(), train.samples.size(), test.z.dim(1));
    for (const auto& [name, value] : results) fmt::print("{:<26}{:.4f}\n", name, value);
    fmt::print("{} in all\n", format_duration(seconds));
    if (out) fmt::print("written to {}: {}, {}\n", o.out, picture_file, results_file);
  });
  return 0;
}

}  // namespace mpigrad::contrast
