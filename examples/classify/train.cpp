#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>

#include "examples/classify/classify.h"
#include "examples/trainer/metrics_file.h"
#include "ops/loss.h"

namespace mpigrad::classify {
namespace {

constexpr const char *weights_file = "weights.h5", *checkpoint_file = "checkpoint.h5", *metrics_file = "metrics.csv";

std::vector<std::string> output_files(const Options& o) {
  std::vector<std::string> files{weights_file, predictions_file, picture_file, summary_file, metrics_file};
  if (o.checkpoint_every > 0) files.emplace_back(checkpoint_file);
  return files;
}

}  // namespace

int train(const Communicator& world, const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0;
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  const trainer::Outputs out(world, o.out, output_files(o), o.overwrite);

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
  const auto optimizer = trainer::make_optimizer(*net, o);
  const auto loss_scale = trainer::make_loss_scale(o, world);
  // The groups say what is for the validation, the counts whether they are still the same.
  const trainer::Notes notes{{"program", "classify"},
                             {"optimizer", o.optimizer},
                             {"groups", fmt::format("{} and {}", o.train_group, o.validation_group)},
                             {"samples", fmt::format("{} and {}", training->size(), validation->size())},
                             {"seed", std::to_string(o.seed)},
                             {"batch", std::to_string(o.batch)},
                             {"precision", trainer::precision_of(o)}};
  const auto first_epoch = trainer::start_from_files(o, world, *net, *optimizer, loss_scale.get(), notes,
                                                     {"program", "optimizer", "groups", "samples"});
  const auto steps = optimizer_steps(*train_set, o.accumulate);
  out.create(world);
  Results results;
  results.classes = static_cast<std::int64_t>(counts.size());
  results.majority = majority_of(validation_counts);

  if (first && !o.json)
    fmt::print(
        "{} volumes of {} for training, {} for validation, {} classes; always the most frequent one is right in {:.1f} %\n"
        "{} parameters, grid {}, {} steps of {} samples per epoch\n",
        training->size(), training->extents(), validation->size(), counts.size(), 100 * results.majority,
        net->parameters().elements(), trainer::to_string(extents), steps, o.batch);
  std::fflush(stdout);

  trainer::MetricsFile metrics(out / metrics_file,
                               {"epoch", "train_loss", "validation_loss", "accuracy", "auc", "learning_rate",
                                "samples_per_second", "seconds", "loss_scale", "skipped_steps"},
                               first ? first_epoch : 0);
  for (const auto& row : metrics.earlier())
    results.epochs.push_back({std::llround(row[0]) - 1, row[1], {.loss = row[2], .accuracy = row[3], .auc = row[4]}});
  Progress progress(o.epochs, steps * o.accumulate, {.rank = world.rank(), .quiet = o.quiet});
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
    evaluate(*net, *validation_set, results);
    const auto& s = results.score;
    results.epochs.push_back({report.epoch, report.loss, s});
    trainer::together(world, [&] {
      if (first)
        metrics.row({report.epoch + 1, report.loss, s.loss, s.accuracy, s.auc, report.learning_rate, report.samples_per_second,
                     report.seconds, report.loss_scale, report.skipped_steps});
    });
    if (o.checkpoint_every > 0 && (report.epoch + 1) % o.checkpoint_every == 0) save(checkpoint_file, report.epoch + 1, true);
    return fmt::format("validation {:.4f}, accuracy {:.3f}, AUC {:.3f}{}", s.loss, s.accuracy, s.auc,
                       trainer::remarks(report));
  };
  if (first_epoch == o.epochs) evaluate(*net, *validation_set, results);  // only the last files were missing
  else
    fit(*net, *optimizer, *train_set, [](const Tensor& logits, const Tensor& labels) { return cross_entropy(logits, labels); },
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
  save(weights_file, o.epochs, false);
  const auto usage = trainer::peak_usage(world);

  trainer::together(world, [&] {
    if (!first) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double rate = training_seconds > 0 ? samples / training_seconds : 0;
    nlohmann::ordered_json run{{"program", "classify"},
                               {"precision", trainer::precision_of(o)},
                               {"loss_scale", loss_scale ? loss_scale->value() : 1},
                               {"skipped_steps", loss_scale ? loss_scale->skipped() : 0},
                               {"grid", trainer::to_json(extents)},
                               {"ranks", world.size()},
                               {"training_samples", training->size()},
                               {"validation_samples", validation->size()},
                               {"classes", results.classes},
                               {"parameters", net->parameters().elements()},
                               {"seconds", seconds},
                               {"training_seconds", training_seconds},
                               {"samples_per_second", rate}};
    trainer::add(run, usage);
    const auto trained =
        training_seconds > 0 ? fmt::format("{} training at {:.1f} samples/s, ", format_duration(training_seconds), rate) : "";
    report(o, out, results, *validation, std::move(run), output_files(o),
           fmt::format("{}{} in all; {}", trained, format_duration(seconds), trainer::to_string(usage)));
  });
  return 0;
}

}  // namespace mpigrad::classify
