// Predictions of trained weights for other samples: compared with known classes or targets, or without them.

#include <nlohmann/json.hpp>

#include "examples/trainers/classify/classify.h"
#include "framework/base/joined.h"

namespace mpigrad::classify {

int infer(const Communicator& world, const InferOptions& o) {
  Results results;
  data::SourcePtr source;
  const std::vector<std::string> files{predictions_file, picture_file, summary_file};
  Recipe recipe;
  const auto open = [&](const CheckpointInfo& info) {
    recipe = recipe_of(o.weights, info);
    results.classes = recipe.classes, results.names = recipe.class_names;
    source = o.scored ? open_scored(o, recipe) : open_unknown(o, recipe);
    return source;
  };
  const auto prepare = [&](const trainer::Part& part) {
    trainer::Subject subject{.net = std::make_unique<Network>(network_options(recipe))};
    subject.headline =
        fmt::format("{} volumes of {} x {}{}; {}", part.samples.size(), source->extents(), source->channels(), part.remark(),
                    recipe.regression() ? "targets " + joined(recipe.targets, ", ") : fmt::format("{} classes", recipe.classes));
    if (!o.scored || recipe.regression()) return subject;
    const auto all = count_classes(*source);
    require(static_cast<std::int64_t>(all.size()) <= recipe.classes, "[classify] {} has the classes 0 to {}, {} only {}", o.data,
            all.size() - 1, o.weights, recipe.classes);
    std::vector<std::int64_t> counts(static_cast<std::size_t>(recipe.classes));
    for (const auto sample : part.samples) ++counts[static_cast<std::size_t>(source->targets(sample).front())];
    results.majority = majority_of(counts);
    subject.headline += fmt::format(", always the most frequent one is right in {:.1f} %", 100 * results.majority);
    return subject;
  };
  const auto finish = [&](const trainer::Outputs& out, const Predictions& predictions, nlohmann::ordered_json run,
                          const std::string& text) {
    if (o.scored) score(results, recipe, predictions), run["validation_samples"] = predictions.samples.size();
    else results.predictions = predictions, restore_units(recipe, results.predictions.predicted);
    if (!recipe.regression()) run["classes"] = results.classes;
    report(o, out, results, recipe, *source, std::move(run), files, text);
  };
  return trainer::infer(
      world, o,
      {.program = "classify", .files = files, .notes = split_notes, .open = open, .prepare = prepare, .report = finish});
}

}  // namespace mpigrad::classify
