#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <numeric>

#include "examples/cosmoflow/cosmoflow.h"
#include "examples/trainer/metrics_file.h"
#include "ops/loss.h"

namespace mpigrad::cosmoflow {
namespace {

constexpr const char *weights_file = "weights.h5", *checkpoint_file = "checkpoint.h5", *metrics_file = "metrics.csv";

std::vector<std::string> output_files(const Options& o) {
  std::vector<std::string> files{weights_file, predictions_file, picture_file, summary_file, metrics_file};
  if (o.checkpoint_every > 0) files.emplace_back(checkpoint_file);
  return files;
}

double mean_squared_error(const Predictions& p) {
  RunningMean mean;
  for (std::size_t i = 0; i < p.predicted.size(); ++i) mean.add((p.predicted[i] - p.truth[i]) * (p.predicted[i] - p.truth[i]));
  return mean.mean();
}

// What a checkpoint is to remember; the first few decide which samples are for the test, and what the optimizer's arrays mean.
trainer::Notes notes_of(const Options& o, const data::Source& source, const data::Split& split) {
  return {{"program", "cosmoflow"},
          {"optimizer", o.optimizer},
          {"samples", std::to_string(source.size())},
          {"test fraction", fmt::format("{}", o.test_fraction)},
          {"seed", std::to_string(o.seed)},
          {"test samples", fingerprint_of(source, split.test)},
          {"variant", o.variant},
          {"batch norm", o.batch_norm ? "yes" : "no"},
          {"batch", std::to_string(o.batch)},
          {"precision", trainer::precision_of(o)},
          {"side", std::to_string(source.extents()[0])}};
}
const std::vector<std::string> decisive_notes{"program", "optimizer", "samples", "test fraction", "seed", "test samples"};

}  // namespace

int train(const Communicator& world, const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0;
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  const trainer::Outputs out(world, o.out, output_files(o), o.overwrite);

  const auto grid = make_grid(world, extents);
  std::shared_ptr<const data::UniverseSource> source;
  std::optional<data::Loader> train_set, test_set;
  std::unique_ptr<CosmoFlow> net;
  data::Split split;
  trainer::together(world, [&] {
    source = std::make_shared<data::UniverseSource>(o.data);
    source->check(world.rank(), world.size());
    require(source->size() >= 2, "[data] {} holds one sample; training and test need one each", o.data);
    split = data::split_train_test(source->size(), o.test_fraction, o.seed);
    const auto micro_batch = o.batch / o.accumulate;
    const data::LoaderOptions common{.grid = grid, .batch = micro_batch, .seed = o.seed, .dtype = trainer::dtype_of(o)};
    auto options = common;
    options.shuffle = true, options.flips = o.flips, options.shifts = o.shifts, options.samples = split.train,
    options.drop_last = true;
    train_set.emplace(source, options);
    options = common;
    options.samples = split.test;
    test_set.emplace(source, options);
    require_cubes(o, *source);
    net = std::make_unique<CosmoFlow>(network_options(o, static_cast<std::int64_t>(source->target_names().size())));
    net->build(train_set->shape(), {.seed = o.seed, .dtype = trainer::dtype_of(o), .compute = trainer::compute_of(o)});
    require(optimizer_steps(*train_set, o.accumulate) > 0, "[data] {} samples make no batch of {}", train_set->samples(),
            o.batch);
  });
  trainer::require_same_data(world, *source);
  const auto optimizer = trainer::make_optimizer(*net, o);
  const auto loss_scale = trainer::make_loss_scale(o, world);
  const auto notes = notes_of(o, *source, split);
  const auto means = target_means(world, *source, split.train);
  auto saved_notes = notes;
  saved_notes[means_note] = to_note(means);
  const auto first_epoch = trainer::start_from_files(o, world, *net, *optimizer, loss_scale.get(), notes, decisive_notes);
  const auto steps = optimizer_steps(*train_set, o.accumulate);
  out.create(world);

  if (first && !o.json)
    fmt::print(
        "{} volumes of {}^3 x {} for training, {} for the test\n{} parameters, grid {}, {} steps of {} samples per epoch\n",
        split.train.size(), source->extents()[0], source->channels(), split.test.size(), net->parameters().elements(),
        trainer::to_string(extents), steps, o.batch);
  std::fflush(stdout);

  Results results;
  results.names = source->target_names();
  trainer::MetricsFile metrics(
      out / metrics_file,
      {"epoch", "train_loss", "test_loss", "learning_rate", "samples_per_second", "seconds", "loss_scale", "skipped_steps"},
      first ? first_epoch : 0);
  for (const auto& row : metrics.earlier()) results.epochs.push_back({std::llround(row[0]) - 1, row[1], row[2]});
  Progress progress(o.epochs, steps * o.accumulate, {.rank = world.rank(), .quiet = o.quiet});
  double training_seconds = 0, samples = 0;
  const auto save = [&](const char* file, std::int64_t epoch, bool with_optimizer) {
    trainer::save(out / file, *net, world,
                  {.optimizer = with_optimizer ? optimizer.get() : nullptr,
                   .loss_scale = with_optimizer ? loss_scale.get() : nullptr,
                   .info = {.step = optimizer->steps(), .epoch = epoch, .notes = saved_notes},
                   .overwrite = true});
  };
  const auto after_epoch = [&](const EpochReport& report) {
    training_seconds += report.seconds;
    samples += report.seconds * report.samples_per_second;
    results.predictions = predict(*net, *test_set);
    const double test_loss = mean_squared_error(results.predictions);
    results.epochs.push_back({report.epoch, report.loss, test_loss});
    trainer::together(world, [&] {
      if (first)
        metrics.row({report.epoch + 1, report.loss, test_loss, report.learning_rate, report.samples_per_second, report.seconds,
                     report.loss_scale, report.skipped_steps});
    });
    if (o.checkpoint_every > 0 && (report.epoch + 1) % o.checkpoint_every == 0) save(checkpoint_file, report.epoch + 1, true);
    return fmt::format("test {:.4f}{}", test_loss, trainer::remarks(report));
  };
  if (first_epoch == o.epochs) results.predictions = predict(*net, *test_set);  // only the last files were missing
  else
    fit(*net, *optimizer, *train_set, [](const Tensor& prediction, const Tensor& target) { return mse(prediction, target); },
        world,
        {.epochs = o.epochs,
         .first_epoch = first_epoch,
         .learning_rate = trainer::make_schedule(o, steps),
         .clip_norm = o.clip_norm,
         .loss_scale = loss_scale.get(),
         .accumulate = o.accumulate,
         .graph = o.graph,
         .progress = &progress,
         .after_epoch = after_epoch});
  score(results, means.values, "the training set");
  save(weights_file, o.epochs, false);
  const auto usage = trainer::peak_usage(world);
  trainer::together(world, [&] {
    if (!first) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double rate = training_seconds > 0 ? samples / training_seconds : 0;
    nlohmann::ordered_json run{{"program", "cosmoflow"},
                               {"variant", o.variant},
                               {"batch_norm", o.batch_norm},
                               {"precision", trainer::precision_of(o)},
                               {"loss_scale", loss_scale ? loss_scale->value() : 1},
                               {"skipped_steps", loss_scale ? loss_scale->skipped() : 0},
                               {"grid", trainer::to_json(extents)},
                               {"ranks", world.size()},
                               {"side", source->extents()[0]},
                               {"training_samples", split.train.size()},
                               {"test_samples", split.test.size()},
                               {"parameters", net->parameters().elements()},
                               {"seconds", seconds},
                               {"training_seconds", training_seconds},
                               {"samples_per_second", rate}};
    trainer::add(run, usage);
    const auto trained =
        training_seconds > 0 ? fmt::format("{} training at {:.1f} samples/s, ", format_duration(training_seconds), rate) : "";
    report(o, out, results, *source, std::move(run), output_files(o),
           fmt::format("{}{} in all; {}", trained, format_duration(seconds), trainer::to_string(usage)));
  });
  return 0;
}

}  // namespace mpigrad::cosmoflow
