#include <chrono>
#include <cmath>
#include <numeric>

#include "comm/collectives.h"
#include "examples/cosmoflow/cosmoflow.h"
#include "examples/trainer/metrics_file.h"
#include "ops/loss.h"

namespace mpigrad::cosmoflow {
namespace {

constexpr const char *weights_file = "weights.h5", *checkpoint_file = "checkpoint.h5", *metrics_file = "metrics.csv",
                     *predictions_file = "predictions.csv", *picture_file = "cosmoflow.png", *summary_file = "summary.json";

std::vector<std::string> output_files(const Options& o) {
  std::vector<std::string> files{weights_file, predictions_file, picture_file, summary_file};
  if (o.epochs > 0) files.emplace_back(metrics_file);
  if (o.checkpoint_every > 0) files.emplace_back(checkpoint_file);
  return files;
}

// Means of the training set's targets: what somebody would predict who has seen no volume. The ranks share the reading.
std::vector<double> target_means(const Communicator& world, const data::Source& source,
                                 const std::vector<std::int64_t>& samples) {
  std::vector<double> sums(source.target_names().size());
  trainer::together(world, [&] {
    for (auto i = static_cast<std::size_t>(world.rank()); i < samples.size(); i += static_cast<std::size_t>(world.size())) {
      const auto targets = source.targets(samples[i]);
      for (std::size_t t = 0; t < sums.size(); ++t) sums[t] += targets[t] / static_cast<double>(samples.size());
    }
  });
  world.transport().allreduce(sums.data(), sums.data(), static_cast<std::int64_t>(sums.size()), DType::float64, Reduction::sum);
  return sums;
}

double mean_squared_error(const Predictions& p) {
  RunningMean mean;
  for (std::size_t i = 0; i < p.predicted.size(); ++i) mean.add((p.predicted[i] - p.truth[i]) * (p.predicted[i] - p.truth[i]));
  return mean.mean();
}

void write_predictions(const std::filesystem::path& path, const Results& r, const data::Source& source, bool overwrite) {
  std::vector<std::string> columns{"sample"};
  for (const auto& name : r.names) columns.push_back(name + "_true"), columns.push_back(name + "_predicted");
  CsvWriter csv(path, columns, overwrite);
  const auto n = r.names.size();
  for (std::size_t i = 0; i < r.predictions.samples.size(); ++i) {
    std::vector<CsvCell> row{source.name_of_sample(r.predictions.samples[i])};
    for (std::size_t t = 0; t < n; ++t)
      row.emplace_back(r.predictions.truth[i * n + t]), row.emplace_back(r.predictions.predicted[i * n + t]);
    csv.row(row);
  }
}

// What a checkpoint is to remember; the first few decide which samples are for the test, and what the optimizer's arrays mean.
trainer::Notes notes_of(const Options& o, const data::Source& source, const data::Split& split) {
  std::vector<std::string> test;
  for (const auto sample : split.test)  // folders may be moved
    test.push_back(std::filesystem::path(source.name_of_sample(sample)).filename().string());
  return {{"program", "cosmoflow"},
          {"optimizer", o.optimizer},
          {"samples", std::to_string(source.size())},
          {"test fraction", fmt::format("{}", o.test_fraction)},
          {"seed", std::to_string(o.seed)},
          {"test samples", trainer::fingerprint(test)},
          {"variant", o.variant},
          {"batch norm", o.batch_norm ? "yes" : "no"},
          {"batch", std::to_string(o.batch)},
          {"precision", trainer::precision_of(o)},
          {"side", std::to_string(source.extents()[0])}};
}
const std::vector<std::string> decisive_notes{"program", "optimizer", "samples", "test fraction", "seed", "test samples"};

void print_scores(const Results& r) {
  fmt::print("\n{:<10} {:>10} {:>10} {:>7} {:>10} {:>10}   on {} test samples, in units of [-1, 1]\n", "parameter", "MSE",
             "of mean", "ratio", "MAE", "of mean", r.predictions.samples.size());
  for (std::size_t t = 0; t < r.names.size(); ++t) {
    const auto& s = r.scores[t];
    fmt::print("{:<10} {:>10.5f} {:>10.5f} {:>7.3f} {:>10.5f} {:>10.5f}\n", r.names[t], s.mse, s.mean_mse, s.mse / s.mean_mse,
               s.mae, s.mean_mae);
  }
}

nlohmann::ordered_json summary(const Options& o, const Results& r, const nlohmann::ordered_json& run) {
  auto document = run;
  auto& scores = document["test"] = nlohmann::ordered_json::object();
  for (std::size_t t = 0; t < r.names.size(); ++t) {
    const auto& s = r.scores[t];
    scores[r.names[t]] = {{"mse", s.mse},
                          {"mae", s.mae},
                          {"mean_mse", s.mean_mse},
                          {"mean_mae", s.mean_mae},
                          {"ratio", s.mse / s.mean_mse},
                          {"correlation", s.correlation}};
  }
  auto& epochs = document["epochs"] = nlohmann::ordered_json::array();
  for (const auto& e : r.epochs)
    epochs.push_back({{"epoch", e.epoch + 1}, {"train_loss", e.train_loss}, {"test_loss", e.test_loss}});
  document["out"] = o.out;
  return document;
}

}  // namespace

int train(const Communicator& world, const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0;
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  if (o.size != 0) throw trainer::UsageError("--size is for --describe; volumes that are trained on have their own");
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
  Progress progress(o.epochs, steps * o.accumulate, {.rank = world.rank(), .quiet = o.quiet || o.epochs == 0});
  double training_seconds = 0, samples = 0;
  const auto save = [&](const char* file, std::int64_t epoch, bool with_optimizer) {
    trainer::save(out / file, *net, world,
                  {.optimizer = with_optimizer ? optimizer.get() : nullptr,
                   .loss_scale = with_optimizer ? loss_scale.get() : nullptr,
                   .info = {.step = optimizer->steps(), .epoch = epoch, .notes = notes},
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
    return fmt::format("test {:.4f}{}", test_loss, trainer::scale_text(report));
  };
  if (o.epochs > 0)
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
  else results.predictions = predict(*net, *test_set);

  const auto means = target_means(world, *source, split.train);
  results.scores = regression_scores(results.predictions.predicted, results.predictions.truth,
                                     static_cast<std::int64_t>(results.names.size()), means);
  save(weights_file, o.epochs, false);
  const auto usage = trainer::peak_usage(world);

  trainer::together(world, [&] {
    if (!first) return;
    write_predictions(out / predictions_file, results, *source, true);
    draw(out / picture_file, results, *source);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
                               {"samples_per_second", training_seconds > 0 ? samples / training_seconds : 0}};
    trainer::add(run, usage);
    const auto document = summary(o, results, run);
    trainer::write_text(out / summary_file, tool::to_text(document) + "\n");
    if (o.json) {
      fmt::print("{}\n", tool::to_text(document));
      return;
    }
    print_scores(results);
    if (training_seconds > 0)
      fmt::print("\n{} training at {:.1f} samples/s, ", format_duration(training_seconds), samples / training_seconds);
    else fmt::print("\n");
    fmt::print("{} in all; {}\nwritten to {}: {}\n", format_duration(seconds), trainer::to_string(usage), o.out,
               fmt::join(output_files(o), ", "));
  });
  return 0;
}

}  // namespace mpigrad::cosmoflow
