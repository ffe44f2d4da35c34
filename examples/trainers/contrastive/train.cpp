#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "examples/trainers/contrastive/contrastive.h"
#include "framework/base/joined.h"
#include "models/train/tensorboard/events.h"
#include "models/trainer/contrastive/monitor.h"
#include "models/trainer/contrastive/samples.h"
#include "models/trainer/contrastive/training.h"
#include "models/trainer/data_check.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/run_training.h"

namespace mpigrad::contrast {
namespace {

constexpr const char* picture_file = "training.png";

std::vector<std::string> output_files(const TrainOptions& o) {
  std::vector<std::string> files{trainer::weights_file, trainer::summary_file, trainer::recipe_file};
  if (o.training.fit.epochs > 0) files.insert(files.end(), {TrainingLog::file, picture_file});
  if (o.training.fit.epochs > 0 && o.resume.empty() && tensorboard::available()) files.push_back(tensorboard::event_file_name(0));
  for (auto& file : trainer::checkpoint_files(o)) files.push_back(std::move(file));
  if (o.training.fit.epochs > 0 && o.mllog) files.emplace_back(trainer::mllog_file);
  return files;
}

// The last epoch, and the features after it.
struct Record {
  Epoch epoch{.report = {.loss = std::nan("")}};
  FeatureQuality quality{};
  std::int64_t bad_batches = 0;  // in all epochs

  // Values of metrics.csv.
  static std::vector<std::string> names() {
    return {"neighbour_accuracy", "retrieval", "collapse/deviation", "collapse/effective_rank", "bad_batches"};
  }
  std::vector<double> values() const {
    return {quality.neighbours, epoch.retrieval, quality.deviation, quality.effective_rank,
            static_cast<double>(epoch.bad_batches)};
  }
  std::string text() const {
    std::vector<std::string> parts;
    if (std::isfinite(quality.neighbours)) parts.push_back(fmt::format("neighbours {:.3f}", quality.neighbours));
    if (std::isfinite(epoch.retrieval)) parts.push_back(fmt::format("pairs {:.3f}", epoch.retrieval));
    if (std::isfinite(quality.effective_rank)) parts.push_back(fmt::format("rank {:.1f}", quality.effective_rank));
    return joined(parts, ", ");
  }
};

void draw(const std::filesystem::path& path, const std::vector<EpochRow>& rows) {
  const auto curve_of = [&](const char* label, const auto& value) {
    plot::Series series{.label = label};
    for (const auto& row : rows) series.x.push_back(static_cast<double>(row.report.epoch + 1)), series.y.push_back(value(row));
    return series;
  };
  const auto curve = [&](const char* label, std::size_t place) {
    return curve_of(label, [=](const EpochRow& row) { return row.values[place]; });
  };
  const auto loss = curve_of("", [](const EpochRow& row) { return row.report.loss; });
  plot::Figure figure("Contrastive training");
  figure.row(320, {plot::Lines{.title = "loss", .x_label = "epoch", .markers = true, .series = {loss}},
                   plot::Lines{.title = "accuracy",
                               .x_label = "epoch",
                               .markers = true,
                               .series = {curve("nearest neighbours", 0), curve("pairs of the last batch", 1)}},
                   plot::Lines{.title = "effective rank", .x_label = "epoch", .markers = true, .series = {curve("", 3)}}});
  figure.save(path, true);
}

void print(const Record& last) {
  const auto& [epoch, quality, bad_batches] = last;
  if (std::isfinite(epoch.report.loss)) fmt::print("\nloss {:.4f}", epoch.report.loss);
  if (std::isfinite(epoch.retrieval)) fmt::print("; pairs found in the last batch {:.3f}", epoch.retrieval);
  if (std::isfinite(epoch.report.loss)) fmt::print("\n");
  if (bad_batches > 0) fmt::print("{} batches with samples that are not finite were left out\n", bad_batches);
  if (std::isfinite(quality.neighbours)) fmt::print("nearest neighbours are right in {:.3f}\n", quality.neighbours);
  if (std::isfinite(quality.deviation))
    fmt::print("collapse: deviation {:.3f} of 1, effective rank {:.1f}\n", quality.deviation, quality.effective_rank);
}

// The summary of a run: its measurements, then the other entries of `run`.
nlohmann::ordered_json summary(const TrainOptions& o, nlohmann::ordered_json run, const Record& last, std::size_t samples,
                               const std::string& views, const std::string& folder) {
  nlohmann::ordered_json document{{"program", "contrastive"},
                                  {"command", "train"},
                                  {"loss", o.loss},
                                  {"precision", run["precision"]},
                                  {"grid", run["grid"]},
                                  {"ranks", run["ranks"]},
                                  {"training_samples", samples},
                                  {"views", views},
                                  {"parameters", run["parameters"]},
                                  {"epochs", o.training.fit.epochs},
                                  {"epochs_behind", run["epochs_behind"]},
                                  {"final_loss", last.epoch.report.loss},
                                  {"retrieval", last.epoch.retrieval},
                                  {"neighbour_accuracy", last.quality.neighbours},
                                  {"deviation", last.quality.deviation},
                                  {"effective_rank", last.quality.effective_rank},
                                  {"bad_batches", last.bad_batches},
                                  {"seconds", run["seconds"]},
                                  {"training_seconds", run["training_seconds"]},
                                  {"samples_per_second", run["samples_per_second"]},
                                  {"out", folder}};
  for (const auto* name : {"loss_scale", "skipped_steps", "average_weights", "waiting_seconds"}) run.erase(name);
  document.update(run);
  return document;
}

}  // namespace

int train(const Communicator& world, TrainOptions o) {
  o.data = o.source.data;
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  if (o.cached > 0 && extents.sample != world.size()) throw UsageError("loss.cached takes a --grid of samples only");
  const trainer::Outputs out(world, o.out, trainer::protected_files(o, output_files(o)), trainer::replaces(o));

  const auto grid = make_grid(world, extents);
  const nn::BatchNormAttributes norm{.momentum = o.norm_momentum, .statistics = trainer::statistics_of(o)};
  data::SourcePtr source;
  Split samples;
  NetworkConfig config;
  std::optional<data::ViewLoader> loader;
  std::unique_ptr<Network> net;
  std::size_t label = 0;
  trainer::of_input(world, [&] {
    source = open(o.source);
    require_label(*source, o.source.label);
    samples = split(*source, o.source);
    if (o.loss == "supcon") labels_of(*source, o.source.label, "--loss supcon");
    if (has_labels(*source)) label = label_index(*source, o.source.label);
    config = config_of(o, source.get());
    trainer::require_batch(o, static_cast<std::int64_t>(samples.train.size()));
    loader.emplace(source, data::ViewOptions{.grid = grid,
                                             .batch = o.batch,
                                             .seed = o.seed,
                                             .views = views_of(o, config),
                                             .samples = samples.train,
                                             .workers = o.source.workers});
    const auto made = loader->shape(0);
    require(made == config.input(o.batch), "[contrastive] '{}' makes {}, data.size asks for {}", config.augment, made,
            config.extents);
    net = std::make_unique<Network>(config, norm);
    trainer::build(*net, loader->layout(0), loader->shape(0), o);
  });
  trainer::require_same_data(world, *source);
  Objective objective(o, config, *net, norm, loader->layout(0), label);
  const auto contents = trainer::read_data(world, *source, samples.train, {.dtype = trainer::dtype_of(o), .finite = !o.skip_bad});
  const auto geometry = trainer::geometry_of(world, *source, samples.train);
  // Without the folder, because data may move between runs.
  std::vector<std::string> names;
  for (const auto sample : samples.train)
    names.push_back(fmt::format("{} {}", sample, std::filesystem::path(source->name_of_sample(sample)).filename().string()));
  trainer::Notes notes{{"program", "contrastive"},
                       {"network", config.text()},
                       {"loss", o.loss},
                       {"optimizer", o.optimizer},
                       {"samples", std::to_string(samples.train.size())},
                       {"training samples", trainer::fingerprint(names)},
                       {"temperature", fmt::format("{}", o.temperature)},
                       {"views", loader->text()},
                       {"seed", std::to_string(o.seed)},
                       {"batch", std::to_string(o.batch)},
                       {"precision", trainer::precision_of(o)}};
  trainer::add_contents(notes, o.data, contents, nullptr);
  notes[trainer::geometry_note] = trainer::to_note(geometry);

  const Monitor monitor(o, *net, source, samples.train, world,
                        {.grid = grid,
                         .batch = std::max<std::int64_t>(o.batch, world.size()),
                         .workers = o.source.workers,
                         .recipe = plain_recipe(source->extents(), config.extents),
                         .refuse_bad = !o.skip_bad});
  Record last;
  ViewTraining training(o, *net, objective, *loader, world);
  const auto run_epoch = [&](std::int64_t epoch, const FitOptions& fit, Optimizer& optimizer) -> std::optional<EpochReport> {
    const auto made = training.run(epoch, fit, optimizer);
    if (!made) return std::nullopt;
    last.epoch = *made, last.bad_batches += made->bad_batches;
    return made->report;
  };
  const auto views = fmt::format("views of {}: {}", config.extents, loader->text());
  const auto test = samples.test.empty() ? "" : fmt::format(", {} kept for the test", samples.test.size());
  const auto headline = fmt::format("{} samples of {} for training{}; {}", samples.train.size(), source->extents(), test, views);
  return trainer::run_training(
      world, o, extents, out,
      {.program = "contrastive",
       .net = *net,
       .own = {.steps = loader->steps(), .samples = loader->samples(), .log_keys = {"eval_accuracy", "retrieval"}},
       .hooks = {.epoch = run_epoch,
                 .evaluate =
                     [&] {
                       last.quality = monitor();
                       return last.values();
                     },
                 .text = [&](const EpochRow&) { return last.text(); },
                 .before_checkpoint = [&] { objective.publish(); },
                 .after_checkpoint = [&] { objective.withdraw(); }},
       .notes = notes,
       .decisive = {"program", "loss", "optimizer"},
       .headline = headline,
       .remark = contents.remark() + geometry.remark(),
       .values = Record::names(),
       .monitor = "train_loss",
       .explained = [&] { return training.explained(); },
       .started =
           [&] {
             if (!o.resume.empty()) objective.restore();
             else if (!o.weights.empty()) objective.begin();
           },
       .report =
           [&](nlohmann::ordered_json run, const TrainerResult& result, const std::string& text) {
             const auto& rows = result.epochs;
             if (!rows.empty()) draw(out / picture_file, rows);
             // The run that was resumed may have finished all epochs already.
             if (std::isnan(last.epoch.report.loss) && !rows.empty() && rows.back().report.epoch + 1 == result.epochs_behind)
               last.epoch.report.loss = rows.back().report.loss, last.epoch.retrieval = rows.back().values[1];
             const auto document = summary(o, std::move(run), last, samples.train.size(), loader->text(), out.folder());
             trainer::write_text(out / trainer::summary_file, tool::to_text(document) + "\n");
             if (o.json) {
               fmt::print("{}\n", tool::to_text(document));
               return;
             }
             print(last);
             fmt::print("{}\nwritten to {}: {}\n", text, out.folder(), joined(out.written(output_files(o)), ", "));
           }});
}

}  // namespace mpigrad::contrast
