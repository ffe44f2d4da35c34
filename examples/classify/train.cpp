#include <nlohmann/json.hpp>

#include "examples/classify/classify.h"
#include "examples/trainer/supervised.h"
#include "ops/loss.h"

namespace mpigrad::classify {

int train(const Communicator& world, const Options& o) {
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  const auto files = trainer::training_files(o, {predictions_file, picture_file});
  const trainer::Outputs out(world, o.out, files, o.overwrite);

  const auto grid = make_grid(world, extents);
  data::SourcePtr training, validation;
  std::optional<data::Loader> train_set, validation_set;
  std::unique_ptr<Network> net;
  std::vector<std::int64_t> counts, validation_counts;
  trainer::together(world, [&] {
    training = open(o, o.train_group), validation = open(o, o.validation_group);
    require(training->extents() == validation->extents() && training->channels() == validation->channels(),
            "[classify] volumes of {} are {} x {}, those of {} {} x {}", o.train_group, training->extents(), training->channels(),
            o.validation_group, validation->extents(), validation->channels());
    counts = count_classes(*training), validation_counts = count_classes(*validation);
    require(counts.size() >= 2 && validation_counts.size() <= counts.size(), "[classify] {} classes in {} and {} in {}",
            counts.size(), o.train_group, validation_counts.size(), o.validation_group);
    const data::LoaderOptions common{
        .grid = grid, .batch = o.batch / o.accumulate, .seed = o.seed, .dtype = trainer::dtype_of(o)};
    auto options = common;
    options.shuffle = true, options.flips = o.flips, options.drop_last = true;
    train_set.emplace(training, options);
    validation_set.emplace(validation, common);
    net = std::make_unique<Network>(network_options(o, static_cast<std::int64_t>(counts.size())));
    net->build(train_set->shape(), {.seed = o.seed, .dtype = trainer::dtype_of(o), .compute = trainer::compute_of(o)});
    require(optimizer_steps(*train_set, o.accumulate) > 0, "[data] {} samples make no batch of {}", train_set->samples(),
            o.batch);
  });
  for (const auto& each : {training, validation}) trainer::require_same_data(world, *each);
  Results results;
  results.classes = static_cast<std::int64_t>(counts.size());
  results.majority = majority_of(validation_counts);
  return trainer::train(
      world, o, extents, out,
      {.program = "classify",
       .net = *net,
       .loader = *train_set,
       .loss = [](const Tensor& logits, const Tensor& labels) { return cross_entropy(logits, labels); },
       // The groups say what is for the validation, the counts whether they are still the same.
       .notes = {{"program", "classify"},
                 {"optimizer", o.optimizer},
                 {"groups", fmt::format("{} and {}", o.train_group, o.validation_group)},
                 {"samples", fmt::format("{} and {}", training->size(), validation->size())},
                 {"seed", std::to_string(o.seed)},
                 {"batch", std::to_string(o.batch)},
                 {"precision", trainer::precision_of(o)}},
       .decisive = {"program", "optimizer", "groups", "samples"},
       .headline = fmt::format(
           "{} volumes of {} for training, {} for validation, {} classes; always the most frequent one is right in {:.1f} %",
           training->size(), training->extents(), validation->size(), counts.size(), 100 * results.majority),
       .values = {"validation_loss", "accuracy", "auc"},
       .evaluate =
           [&] {
             evaluate(*net, *validation_set, results);
             return std::vector{results.score.loss, results.score.accuracy, results.score.auc};
           },
       .text =
           [](const std::vector<double>& values) {
             return fmt::format("validation {:.4f}, accuracy {:.3f}, AUC {:.3f}", values[0], values[1], values[2]);
           },
       .report =
           [&](nlohmann::ordered_json run, const TrainerResult& result, const std::string& text) {
             for (const auto& row : result.epochs)
               results.epochs.push_back(
                   {row.report.epoch, row.report.loss, {.loss = row.values[0], .accuracy = row.values[1], .auc = row.values[2]}});
             run.update({{"training_samples", training->size()},
                         {"validation_samples", validation->size()},
                         {"classes", results.classes}});
             report(o, out, results, *validation, std::move(run), files, text);
           }});
}

}  // namespace mpigrad::classify
