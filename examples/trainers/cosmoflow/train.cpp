#include <nlohmann/json.hpp>

#include "examples/trainers/cosmoflow/cosmoflow.h"
#include "examples/trainers/cosmoflow/last_layer.h"
#include "models/trainer/data_check.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/samples.h"
#include "models/trainer/supervised.h"
#include "ops/loss/loss.h"

namespace mpigrad::cosmoflow {
namespace {

double mean_squared_error(const Predictions& p) {
  RunningMean mean;
  for (std::size_t i = 0; i < p.predicted.size(); ++i) mean.add((p.predicted[i] - p.truth[i]) * (p.predicted[i] - p.truth[i]));
  return mean.mean();
}

// What a checkpoint is to remember; the first few decide which samples are for the test, and what the optimizer's arrays mean.
trainer::Notes notes_of(const TrainOptions& o, const CosmoFlow& net, const data::Source& source, const data::Split& split) {
  return {{"program", "cosmoflow"},
          {"optimizer", o.optimizer},
          {"samples", std::to_string(source.size())},
          {"test fraction", fmt::format("{}", o.test_fraction)},
          {"seed", std::to_string(o.seed)},
          {"test samples", trainer::fingerprint(source, split.test)},
          {"variant", o.variant},
          {"filters", std::to_string(net.options().filters)},
          {"batch norm", o.batch_norm ? "yes" : "no"},
          {"transpositions", o.transpositions ? "yes" : "no"},
          {"batch", std::to_string(o.batch)},
          {"precision", trainer::precision_of(o)},
          {"side", std::to_string(source.extents()[0])}};
}
const std::vector<std::string> decisive_notes{"program", "optimizer", "test fraction", "seed"};

}  // namespace

int train(const Communicator& world, const TrainOptions& o) {
  const auto extents = trainer::parse_grid(o.grid, world.size(), trainer::Channels::split);
  trainer::check_grid(extents, world.size());
  const auto files = trainer::training_files(o, {predictions_file, picture_file});
  const trainer::Outputs out(world, o.out, trainer::protected_files(o, files), trainer::replaces(o));

  const auto grid = trainer::grid_of_ranks(world, o, extents);
  data::SourcePtr source;
  std::optional<data::Loader> train_set, test_set;
  std::unique_ptr<CosmoFlow> net;
  data::Split split;
  trainer::together(world, [&] {
    source = open_universes(o, "", true);
    require(has_parameters(*source), "[data] {} has no parameters to learn", o.data);
    if (source->size() < 2)
      throw trainer::UsageError(fmt::format("[data] {} holds one sample; training and test need one each", o.data));
    split = data::split_train_test(source->size(), o.test_fraction, o.seed);
    trainer::require_batch(o, static_cast<std::int64_t>(split.train.size()));
    const auto micro_batch = o.batch / o.accumulate;
    const data::LoaderOptions common{.grid = grid, .batch = micro_batch, .seed = o.seed, .dtype = trainer::dtype_of(o)};
    auto options = common;
    options.shuffle = true, options.flips = o.flips, options.transpositions = o.transpositions, options.shifts = o.shifts;
    options.samples = split.train, options.drop_last = true;
    trainer::set_reading(options, *source, o);
    train_set.emplace(source, options);
    options = common;
    options.samples = split.test;
    test_set.emplace(source, options);
    net = std::make_unique<CosmoFlow>(network_options(o, static_cast<std::int64_t>(source->target_names().size())));
    trainer::build(*net, train_set->layout(), train_set->shape(), o);
  });
  trainer::require_same_data(world, *source);
  const data::ContentsOptions reading{.dtype = trainer::dtype_of(o)};
  auto contents = trainer::read_data(world, *source, split.train, reading);
  const auto kept = trainer::read_data(world, *source, split.test, reading);
  auto notes = notes_of(o, *net, *source, split);
  trainer::add_contents(notes, o.data, contents, &kept);
  contents += kept;
  const bool starts = o.weights.empty() && (o.resume.empty() || o.resume == trainer::newest_in_out);
  if (o.variant == "pyramid" && o.last_layer == "fitted" && starts && split.train.size() > 1) {
    data::LoaderOptions options{.grid = grid, .batch = o.batch / o.accumulate, .seed = o.seed, .dtype = trainer::dtype_of(o)};
    options.samples = split.train;
    fit_last_layer(*net, data::Loader(source, options));
  }
  const auto geometry = trainer::geometry_of(world, *source, trainer::all_samples(*source));
  notes[trainer::geometry_note] = trainer::to_note(geometry);
  const auto targets = targets_of(world, *source, split.train);
  const auto baseline = fit_baseline(world, *source, split.train);
  Results results;
  results.spectrum = predict_baseline(world, *source, split.test, baseline);
  results.names = targets.names, results.offset = targets.offset, results.scale = targets.scale;
  return trainer::train(world, o, extents, out,
                        {.program = "cosmoflow",
                         .net = *net,
                         .loader = *train_set,
                         .loss = mse,
                         .notes = notes,
                         .decisive = decisive_notes,
                         .more_notes = {{targets_note, to_note(targets)},
                                        {baseline_note, to_note(baseline)},
                                        {"channels", std::to_string(source->channels())}},
                         .headline = fmt::format("{} volumes of {}^3 x {} for training, {} for the test; {}", split.train.size(),
                                                 source->extents()[0], source->channels(), split.test.size(),
                                                 contents.remark() + geometry.remark()),
                         .values = {"test_loss"},
                         .evaluate =
                             [&] {
                               results.predictions = predict(*net, *test_set);
                               return std::vector{mean_squared_error(results.predictions)};
                             },
                         .evaluated_samples = static_cast<std::int64_t>(split.test.size()),
                         .text = [](const std::vector<double>& values) { return fmt::format("test {:.4f}", values[0]); },
                         .report =
                             [&](nlohmann::ordered_json run, const TrainerResult& result, const std::string& text) {
                               for (const auto& row : result.epochs)
                                 results.epochs.push_back({row.report.epoch, row.report.loss, row.values[0]});
                               score(results, targets.means, "the training set");
                               run.update({{"variant", o.variant},
                                           {"filters", net->options().filters},
                                           {"batch_norm", o.batch_norm},
                                           {"side", source->extents()[0]},
                                           {"training_samples", split.train.size()},
                                           {"test_samples", split.test.size()}});
                               report(o, out, results, *source, std::move(run), files, text);
                             }});
}

}  // namespace mpigrad::cosmoflow
