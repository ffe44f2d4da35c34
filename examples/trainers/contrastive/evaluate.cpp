#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "examples/trainers/contrastive/contrastive.h"
#include "models/train/progress.h"
#include "models/trainer/contrastive/encode.h"
#include "models/trainer/contrastive/evaluation.h"
#include "models/trainer/contrastive/samples.h"
#include "models/trainer/data_check.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/run.h"

namespace mpigrad::contrast {
namespace {

constexpr const char *picture_file = "evaluation.png", *results_file = "evaluation.json";

}  // namespace

int evaluate(const Communicator& world, const EvaluateOptions& o) {
  const auto start = std::chrono::steady_clock::now();
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  Loaded loaded;
  if (!o.weights.empty()) loaded = load_network(o.weights, world);
  FeatureSet train, test;
  EvaluationPlan plan;
  trainer::of_input(world, [&] {
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
    if (is_floating(set->source->type()) && (set == &test || plan.learns()))
      trainer::check_data(world, *set->source, set->samples, {});
  if (out) out->create(world);
  const auto features = [&](const FeatureSet& set, const augment::Recipe& recipe, int views) {
    auto at = encoding;
    at.recipe = recipe, at.views = views;
    return o.pixels ? pixels(set.source, set.samples, world, at) : encode(*loaded.net, set.source, set.samples, world, at);
  };
  if (plan.learns()) train.z = features(train, plain_recipe(train.source->extents(), to), 1)[0];
  test.z = features(test, plain_recipe(test.source->extents(), to), 1)[0];
  Tensors pairs;
  if (plan.geometry && !o.pixels) pairs = features(test, parse_recipe(loaded.config.augment, to), 2);

  const auto results = measure(o, plan, train, test, pairs, world);
  if (out) draw(*out / picture_file, test, world);
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
