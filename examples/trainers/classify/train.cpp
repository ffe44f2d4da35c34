#include <functional>
#include <nlohmann/json.hpp>

#include "examples/trainers/classify/classify.h"
#include "framework/base/joined.h"
#include "models/trainer/data_check.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/samples.h"
#include "models/trainer/supervised.h"
#include "ops/loss/loss.h"

namespace mpigrad::classify {
namespace {

// The groups or the split say what is for the validation, the counts and names whether they are still the same.
trainer::Notes notes_of(const TrainOptions& o, const Sets& sets, const Recipe& recipe) {
  const bool divided = sets.all > 0;
  return {{"program", "classify"},
          {"optimizer", o.optimizer},
          {"groups", fmt::format("{} and {}", sets.train_group, sets.validation_group)},
          {"samples", fmt::format("{} and {}", sets.training->size(), sets.validation->size())},
          {recipe_note, to_note(recipe)},
          {split_notes.samples, std::to_string(sets.all)},
          {split_notes.fraction, divided ? fmt::format("{}", o.validation_fraction) : "none"},
          {split_notes.seed, divided ? std::to_string(o.split_seed) : "none"},
          {split_notes.kept, trainer::fingerprint(*sets.validation, trainer::all_samples(*sets.validation))},
          {"seed", std::to_string(o.seed)},
          {"batch", std::to_string(o.batch)},
          {"precision", trainer::precision_of(o)}};
}

}  // namespace

int train(const Communicator& world, const TrainOptions& o) {
  const auto extents = trainer::parse_grid(o.grid, world.size(), trainer::Channels::split);
  trainer::check_grid(extents, world.size());
  const auto files = trainer::training_files(o, {predictions_file, picture_file});
  const trainer::Outputs out(world, o.out, trainer::protected_files(o, files), trainer::replaces(o));

  const auto grid = trainer::grid_of_ranks(world, o, extents);
  Sets sets;
  auto recipe = o.recipe;
  std::optional<data::Loader> train_set, validation_set;
  std::unique_ptr<Network> net;
  trainer::together(world, [&] {
    sets = open_sets(o, recipe);
    trainer::require_batch(o, sets.training->size());
    const data::LoaderOptions common{
        .grid = grid, .batch = o.batch / o.accumulate, .seed = o.seed, .dtype = trainer::dtype_of(o)};
    auto options = common;
    options.shuffle = true, options.flips = o.flips, options.drop_last = true;
    trainer::set_reading(options, *sets.training, o);
    train_set.emplace(sets.training, options);
    validation_set.emplace(sets.validation, common);
    net = std::make_unique<Network>(network_options(o, recipe));
    trainer::build(*net, train_set->layout(), train_set->shape(), o);
  });
  const auto &training = sets.training, &validation = sets.validation;
  for (const auto& each : {training, validation}) trainer::require_same_data(world, *each);
  const data::ContentsOptions reading{.dtype = trainer::dtype_of(o)};
  auto contents = trainer::read_data(world, *training, trainer::all_samples(*training), reading);
  const auto kept = trainer::read_data(world, *validation, trainer::all_samples(*validation), reading);
  auto notes = notes_of(o, sets, recipe);
  trainer::add_contents(notes, o.source.data, contents, &kept);
  contents += kept;
  const auto geometry = trainer::geometry_of(world, *training, trainer::all_samples(*training));
  notes[trainer::geometry_note] = trainer::to_note(geometry);
  Results results;
  results.classes = recipe.classes, results.names = recipe.class_names;
  const bool regression = recipe.regression();
  if (!regression) results.majority = majority_of(count_classes(*validation));
  std::function<double(const std::vector<double>&)> accuracy;
  if (!regression) accuracy = [](const std::vector<double>& values) { return values[1]; };
  return trainer::train(
      world, o, extents, out,
      {.program = "classify",
       .net = *net,
       .loader = *train_set,
       .loss = regression ? LossFunction(mse) : LossFunction(cross_entropy),
       .notes = notes,
       .decisive = {"program", "optimizer", "groups", recipe_note, split_notes.fraction, split_notes.seed},
       .headline = fmt::format("{} volumes of {} for training, {} for validation, {}; {}", training->size(), training->extents(),
                               validation->size(),
                               regression ? "targets " + joined(recipe.targets, ", ")
                                          : fmt::format("{} classes; always the most frequent one is right in {:.1f} %",
                                                        recipe.classes, 100 * results.majority),
                               contents.remark() + geometry.remark()),
       .values = regression ? std::vector<std::string>{"validation_loss", "r2"}
                            : std::vector<std::string>{"validation_loss", "accuracy", "auc"},
       .evaluate =
           [&] {
             score(results, recipe, predict(*net, *validation_set));
             if (regression) return std::vector{results.score.loss, results.score.r2};
             return std::vector{results.score.loss, results.score.accuracy, results.score.auc};
           },
       .evaluated_samples = validation->size(),
       .accuracy = accuracy,
       .text =
           [&](const std::vector<double>& values) {
             if (regression) return fmt::format("validation {:.4f}, R2 {:.3f}", values[0], values[1]);
             return fmt::format("validation {:.4f}, accuracy {:.3f}, AUC {:.3f}", values[0], values[1], values[2]);
           },
       .report =
           [&](nlohmann::ordered_json run, const TrainerResult& result, const std::string& text) {
             for (const auto& row : result.epochs) {
               Score score{.loss = row.values[0]};
               if (regression) score.r2 = row.values[1];
               else score.accuracy = row.values[1], score.auc = row.values[2];
               results.epochs.push_back({row.report.epoch, row.report.loss, score});
             }
             run.update({{"training_samples", training->size()}, {"validation_samples", validation->size()}});
             if (!regression) run["classes"] = results.classes;
             report(o, out, results, recipe, *validation, std::move(run), files, text);
           }});
}

}  // namespace mpigrad::classify
