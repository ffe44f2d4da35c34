#include <algorithm>
#include <chrono>
#include <cmath>

#include "examples/classify/classify.h"
#include "examples/trainer/metrics_file.h"
#include "ops/loss.h"

namespace mpigrad::classify {
namespace {

constexpr const char *weights_file = "weights.h5", *checkpoint_file = "checkpoint.h5", *metrics_file = "metrics.csv",
                     *predictions_file = "predictions.csv", *picture_file = "classify.png", *summary_file = "summary.json";

std::vector<std::string> output_files(const Options& o) {
  std::vector<std::string> files{weights_file, predictions_file, picture_file, summary_file};
  if (o.epochs > 0) files.emplace_back(metrics_file);
  if (o.checkpoint_every > 0) files.emplace_back(checkpoint_file);
  return files;
}

data::SourcePtr open(const Options& o, const std::string& group) {
  auto source = std::make_shared<data::ArraySource>(o.data, group, data::ArrayNames{.volume = o.volume, .label = o.label});
  require(source->target_type() == DType::int64 && source->target_names().size() == 1,
          "[classify] the labels in {} are not classes: integers, one for each sample", source->name_of_sample(0));
  return source;
}

// How often each class occurs.
std::vector<std::int64_t> count_classes(const data::Source& source) {
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const auto label = static_cast<std::int64_t>(source.targets(i).front());
    require(label >= 0 && label < 10000, "[classify] the label of {} is {}; classes count from 0", source.name_of_sample(i),
            label);
    if (static_cast<std::size_t>(label) >= counts.size()) counts.resize(static_cast<std::size_t>(label) + 1);
    ++counts[static_cast<std::size_t>(label)];
  }
  return counts;
}

Score score(const Predictions& p, const std::vector<std::int64_t>& labels, std::int64_t classes) {
  Score result;
  result.accuracy = accuracy(argmax_rows(p.predicted, classes), labels);
  const auto n = static_cast<std::size_t>(classes);
  RunningMean loss, auc;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double* row = p.predicted.data() + i * n;
    const double largest = *std::max_element(row, row + n);
    double sum = 0;
    for (std::size_t c = 0; c < n; ++c) sum += std::exp(row[c] - largest);
    loss.add(largest + std::log(sum) - row[static_cast<std::size_t>(labels[i])]);
  }
  result.loss = loss.mean();
  for (std::size_t c = classes == 2 ? 1 : 0; c < n; ++c) {
    std::vector<double> scores;
    std::vector<std::int64_t> is_class;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      // Against the best of the others: for two classes the difference of logits.
      double other = -1e300;
      for (std::size_t k = 0; k < n; ++k)
        if (k != c) other = std::max(other, p.predicted[i * n + k]);
      scores.push_back(p.predicted[i * n + c] - other);
      is_class.push_back(labels[i] == static_cast<std::int64_t>(c));
    }
    const auto positives = std::count(is_class.begin(), is_class.end(), 1);
    if (positives > 0 && positives < static_cast<std::ptrdiff_t>(labels.size())) auc.add(roc_auc(scores, is_class));
  }
  result.auc = auc.mean();
  return result;
}

void write_predictions(const std::filesystem::path& path, const Results& r, const data::Source& source) {
  std::vector<std::string> columns{"sample", "label"};
  for (std::int64_t c = 0; c < r.classes; ++c) columns.push_back(fmt::format("logit_{}", c));
  CsvWriter csv(path, columns, true);
  const auto n = static_cast<std::size_t>(r.classes);
  for (std::size_t i = 0; i < r.labels.size(); ++i) {
    std::vector<CsvCell> row{source.name_of_sample(r.predictions.samples[i]), r.labels[i]};
    for (std::size_t c = 0; c < n; ++c) row.emplace_back(r.predictions.predicted[i * n + c]);
    csv.row(row);
  }
}

nlohmann::ordered_json to_json(const Score& s) { return {{"loss", s.loss}, {"accuracy", s.accuracy}, {"auc", s.auc}}; }

}  // namespace

int train(const Communicator& world, const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0;
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  if (o.size != 0) throw trainer::UsageError("--size is for --describe; volumes that are trained on have their own");
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
  const double majority = static_cast<double>(*std::max_element(validation_counts.begin(), validation_counts.end())) /
                          static_cast<double>(validation->size());

  if (first && !o.json)
    fmt::print(
        "{} volumes of {} for training, {} for validation, {} classes; always the most frequent one is right in {:.1f} %\n"
        "{} parameters, grid {}, {} steps of {} samples per epoch\n",
        training->size(), training->extents(), validation->size(), counts.size(), 100 * majority, net->parameters().elements(),
        trainer::to_string(extents), steps, o.batch);
  std::fflush(stdout);

  Results results;
  results.classes = static_cast<std::int64_t>(counts.size());
  trainer::MetricsFile metrics(out / metrics_file,
                               {"epoch", "train_loss", "validation_loss", "accuracy", "auc", "learning_rate",
                                "samples_per_second", "seconds", "loss_scale", "skipped_steps"},
                               first ? first_epoch : 0);
  for (const auto& row : metrics.earlier())
    results.epochs.push_back({std::llround(row[0]) - 1, row[1], {.loss = row[2], .accuracy = row[3], .auc = row[4]}});
  Progress progress(o.epochs, steps * o.accumulate, {.rank = world.rank(), .quiet = o.quiet || o.epochs == 0});
  double training_seconds = 0, samples = 0;
  const auto save = [&](const char* file, std::int64_t epoch, bool with_optimizer) {
    trainer::save(out / file, *net, world,
                  {.optimizer = with_optimizer ? optimizer.get() : nullptr,
                   .loss_scale = with_optimizer ? loss_scale.get() : nullptr,
                   .info = {.step = optimizer->steps(), .epoch = epoch, .notes = notes},
                   .overwrite = true});
  };
  const auto evaluate = [&] {
    results.predictions = predict(*net, *validation_set);
    results.labels.assign(results.predictions.truth.begin(), results.predictions.truth.end());
    results.score = score(results.predictions, results.labels, results.classes);
  };
  const auto after_epoch = [&](const EpochReport& report) {
    training_seconds += report.seconds;
    samples += report.seconds * report.samples_per_second;
    evaluate();
    const auto& s = results.score;
    results.epochs.push_back({report.epoch, report.loss, s});
    trainer::together(world, [&] {
      if (first)
        metrics.row({report.epoch + 1, report.loss, s.loss, s.accuracy, s.auc, report.learning_rate, report.samples_per_second,
                     report.seconds, report.loss_scale, report.skipped_steps});
    });
    if (o.checkpoint_every > 0 && (report.epoch + 1) % o.checkpoint_every == 0) save(checkpoint_file, report.epoch + 1, true);
    return fmt::format("validation {:.4f}, accuracy {:.3f}, AUC {:.3f}{}", s.loss, s.accuracy, s.auc,
                       trainer::scale_text(report));
  };
  if (o.epochs > 0)
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
  else evaluate();
  save(weights_file, o.epochs, false);
  const auto usage = trainer::peak_usage(world);

  trainer::together(world, [&] {
    if (!first) return;
    write_predictions(out / predictions_file, results, *validation);
    draw(out / picture_file, results, *validation);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    nlohmann::ordered_json document{{"program", "classify"},
                                    {"precision", trainer::precision_of(o)},
                                    {"loss_scale", loss_scale ? loss_scale->value() : 1},
                                    {"skipped_steps", loss_scale ? loss_scale->skipped() : 0},
                                    {"grid", trainer::to_json(extents)},
                                    {"ranks", world.size()},
                                    {"training_samples", training->size()},
                                    {"validation_samples", validation->size()},
                                    {"classes", results.classes},
                                    {"parameters", net->parameters().elements()},
                                    {"validation", to_json(results.score)},
                                    {"majority_accuracy", majority},
                                    {"seconds", seconds},
                                    {"training_seconds", training_seconds},
                                    {"samples_per_second", training_seconds > 0 ? samples / training_seconds : 0}};
    trainer::add(document, usage);
    auto& epochs = document["epochs"] = nlohmann::ordered_json::array();
    for (const auto& e : results.epochs)
      epochs.push_back({{"epoch", e.epoch + 1}, {"train_loss", e.train_loss}, {"validation", to_json(e.validation)}});
    document["out"] = o.out;
    trainer::write_text(out / summary_file, tool::to_text(document) + "\n");
    if (o.json) {
      fmt::print("{}\n", tool::to_text(document));
      return;
    }
    fmt::print("\nvalidation: AUC {:.3f}, accuracy {:.3f} (most frequent class {:.3f}), cross-entropy {:.4f}\n",
               results.score.auc, results.score.accuracy, majority, results.score.loss);
    if (training_seconds > 0)
      fmt::print("{} training at {:.1f} samples/s, ", format_duration(training_seconds), samples / training_seconds);
    fmt::print("{} in all; {}\nwritten to {}: {}\n", format_duration(seconds), trainer::to_string(usage), o.out,
               fmt::join(output_files(o), ", "));
  });
  return 0;
}

}  // namespace mpigrad::classify
