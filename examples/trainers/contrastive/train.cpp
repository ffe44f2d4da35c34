#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "examples/trainers/contrastive/contrastive.h"
#include "models/trainer/contrastive/encode.h"
#include "models/trainer/contrastive/samples.h"
#include "models/trainer/contrastive/training.h"
#include "framework/base/joined.h"
#include "models/evaluate/embeddings.h"
#include "models/train/restart/local_copies.h"
#include "models/train/tensorboard/events.h"
#include "models/train/trainer.h"
#include "models/trainer/data_check.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/ranks/local_training.h"
#include "models/trainer/run.h"
#include "models/trainer/slices.h"
#include "models/trainer/supervised.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad::contrast {
namespace {

constexpr const char *weights_file = "weights.h5", *metrics_file = TrainingLog::file, *picture_file = "training.png",
                     *summary_file = "summary.json";

std::vector<std::string> output_files(const TrainOptions& o) {
  std::vector<std::string> files{weights_file, summary_file};
  if (o.epochs > 0) files.insert(files.end(), {metrics_file, picture_file});
  if (o.epochs > 0 && o.resume.empty() && tensorboard::available()) files.push_back(tensorboard::event_file_name(0));
  for (auto& file : trainer::checkpoint_files(o)) files.push_back(std::move(file));
  if (o.epochs > 0 && o.mllog) files.emplace_back(trainer::mllog_file);
  return files;
}

// Measures of the features after an epoch; NaN where one is undefined.
struct FeatureQuality {
  double neighbours = std::nan("");  // accuracy, if there are labels
  double deviation = std::nan(""), effective_rank = std::nan("");
};

// Some of the training samples, drawn at random; half of them are the bank in which the others look for neighbours.
class Monitor {
 public:
  Monitor(const TrainOptions& o, Network& net, const data::SourcePtr& source, const std::vector<std::int64_t>& samples,
          const Communicator& world, const EncodeAttributes& encode)
      : net_(net), source_(source), world_(world), encode_(encode) {
    const auto all = static_cast<std::int64_t>(samples.size());
    const auto count = std::min(o.monitor, all);
    if (count < least) return;
    const auto labels = has_labels(*source) ? labels_of(*source, o.source.label, "the monitor") : std::vector<std::int64_t>();
    if (count == all) samples_ = samples;
    else
      for (const auto i : data::split_train_test(all, static_cast<double>(count) / static_cast<double>(all), seed).test)
        samples_.push_back(samples[static_cast<std::size_t>(i)]);
    in_bank_.resize(samples_.size());
    for (const auto i : data::split_train_test(count, 0.5, seed).test) in_bank_[static_cast<std::size_t>(i)] = true;
    for (const auto sample : samples_)
      if (!labels.empty()) labels_.push_back(static_cast<double>(labels[static_cast<std::size_t>(sample)]));
  }

  FeatureQuality operator()() const {
    FeatureQuality result;
    if (samples_.empty()) return result;
    Untaped scope;
    const auto all = encode(net_, source_, samples_, world_, encode_)[0];
    UseDevice device(DeviceKind::cpu);
    // Only schedule.skip_bad lets samples that are not finite come here.
    std::vector<double> good;
    const auto sums = sum(all, {1}).to_vector();
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (std::isfinite(sums[i])) good.push_back(static_cast<double>(i));
    if (static_cast<std::int64_t>(good.size()) < least) return result;
    const auto found = contrastive::collapse(part_of(rows_of(all, good), world_), world_);
    result.deviation = found.mean_deviation, result.effective_rank = found.effective_rank;
    if (labels_.empty()) return result;
    const auto half = [&](bool bank) {
      std::vector<double> places, names;
      for (const double place : good)
        if (in_bank_[static_cast<std::size_t>(place)] == bank)
          places.push_back(place), names.push_back(labels_[static_cast<std::size_t>(place)]);
      const auto n = static_cast<std::int64_t>(places.size());
      return contrastive::Labelled{part_of(rows_of(all, places), world_), part_of(from_vector({n}, names, DType::int64), world_)};
    };
    if (const auto in_bank =
            std::count_if(good.begin(), good.end(), [&](double at) { return in_bank_[static_cast<std::size_t>(at)]; });
        in_bank > 0 && in_bank < static_cast<std::int64_t>(good.size()))
      result.neighbours = score_or_nan([&] { return contrastive::neighbour_accuracy(half(false), half(true), world_); });
    return result;
  }

 private:
  static Tensor rows_of(const Tensor& x, const std::vector<double>& places) {
    return take(x, from_vector({static_cast<std::int64_t>(places.size())}, places, DType::int64));
  }

  Network& net_;
  data::SourcePtr source_;
  Communicator world_;
  EncodeAttributes encode_;
  static constexpr std::int64_t least = 4;
  static constexpr std::uint64_t seed = 1;  // of what is looked at, whatever is trained
  std::vector<std::int64_t> samples_;
  std::vector<double> labels_;
  std::vector<bool> in_bank_;
};

struct Record {
  Epoch epoch{.report = {.loss = std::nan("")}};
  FeatureQuality quality;
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

// A twentieth to a seventh of the area, or of the volume, as SwAV's of pictures (Caron et al. 2020); with the other steps of
// recipes for photographs, with the symmetries of the cube for volumes.
augment::Recipe small_recipe(const TrainOptions& o, const std::string& recipe, const Shape& large) {
  const auto to = small_extents(o, large);
  if (recipe == "simclr") return augment::photographs(to, {0.05, 0.14});
  augment::Recipe result{augment::random_resized_crop({.to = to, .area = {0.05, 0.14}})};
  if (recipe == "volume") result.add(augment::random_turn(true));
  return result;
}

}  // namespace

int train(const Communicator& world, TrainOptions o) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0;
  o.data = o.source.data;
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  if (o.cached > 0 && extents.sample != world.size()) throw UsageError("loss.cached takes a --grid of samples only");
  const trainer::Outputs out(world, o.out, trainer::protected_files(o, output_files(o)), trainer::replaces(o));

  const auto grid = make_grid(world, extents);
  const nn::BatchNormAttributes norm{.momentum = o.norm_momentum, .statistics = trainer::statistics_of(o)};
  data::SourcePtr source;
  Split samples;
  NetworkConfig config{.options = o.network,
                       .loss = o.loss,
                       .dtype = std::string(name_of(trainer::dtype_of(o))),
                       .precision = trainer::precision_of(o),
                       .augment = {}};
  std::optional<data::ViewLoader> loader;
  std::unique_ptr<Network> net;
  std::size_t label = 0;
  trainer::together(world, [&] {
    source = open(o.source);
    require_label(*source, o.source.label);
    samples = split(*source, o.source);
    if (o.loss == "supcon") labels_of(*source, o.source.label, "--loss supcon");
    if (has_labels(*source)) label = label_index(*source, o.source.label);
    const auto size = parse_extents("data.size", o.source.size);
    config.extents = size.rank() == 3 ? size : source->extents();
    config.channels = source->channels();
    config.augment = o.augment.empty() ? default_recipe(*source) : o.augment;
    trainer::require_batch(o, static_cast<std::int64_t>(samples.train.size()));
    data::ViewOptions options{.grid = grid,
                              .batch = o.batch,
                              .seed = o.seed,
                              .views = {{parse_recipe(config.augment, config.extents), 2}},
                              .samples = samples.train,
                              .workers = o.source.workers};
    if (o.small_crops > 0) options.views.push_back({small_recipe(o, config.augment, config.extents), o.small_crops});
    loader.emplace(source, options);
    const auto made = loader->shape(0);
    require(made == config.input(o.batch), "[contrastive] '{}' makes {}, data.size asks for {}", config.augment, made,
            config.extents);
    net = std::make_unique<Network>(config, norm);
    trainer::build(*net, loader->layout(0), loader->shape(0), o);
  });
  trainer::require_same_data(world, *source);
  const auto optimizer = trainer::make_optimizer(*net, o);
  const auto loss_scale = trainer::make_loss_scale(o, world);
  Objective objective(o, config, *net, norm, loader->layout(0), label);
  // Without the folder: data may move between runs.
  std::vector<std::string> names;
  for (const auto sample : samples.train)
    names.push_back(fmt::format("{} {}", sample, std::filesystem::path(source->name_of_sample(sample)).filename().string()));
  const auto contents = trainer::read_data(world, *source, samples.train, {.dtype = trainer::dtype_of(o), .finite = !o.skip_bad});
  const auto geometry = trainer::geometry_of(world, *source, samples.train);
  const auto steps = loader->steps();
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
  notes.merge(trainer::option_notes(o, steps));
  if (!o.resume.empty()) objective.publish();
  out.lock(world, trainer::patience_of(o));
  const auto began = trainer::start_from_files(o, world, *net, *optimizer, nullptr, loss_scale.get(), steps, notes,
                                               {"program", "loss", "optimizer"});
  const auto first_epoch = began.epoch;
  if (!o.resume.empty()) objective.restore(), objective.withdraw();
  else if (!o.weights.empty()) objective.begin();
  out.create(world, trainer::files_to_try(o, *net, *optimizer, false, first_epoch * steps));

  if (first && !o.json)
    fmt::print("{} samples of {} for training{}; views of {}: {}\n{} parameters, grid {}, {} steps of {} samples per epoch\n{}\n",
               samples.train.size(), source->extents(),
               samples.test.empty() ? "" : fmt::format(", {} kept for the test", samples.test.size()), config.extents,
               loader->text(), net->parameters().elements(), trainer::to_string(extents), steps, o.batch,
               contents.remark() + geometry.remark());
  std::fflush(stdout);

  const Monitor monitor(o, *net, source, samples.train, world,
                        {.grid = grid,
                         .batch = std::max<std::int64_t>(o.batch, world.size()),
                         .workers = o.source.workers,
                         .recipe = plain_recipe(source->extents(), config.extents),
                         .refuse_bad = !o.skip_bad});
  Record last;
  std::int64_t bad_batches = 0;
  Trainer training(o, *net, objective, *optimizer, loss_scale.get(), *source, *loader, world, trainer::make_schedule(o, steps));
  std::optional<trainer::TrainingMlLog> log;
  if (o.epochs > 0)
    log.emplace(world, out, o,
                trainer::TrainingMlLog::About{.program = "contrastive",
                                              .samples = loader->samples(),
                                              .first_epoch = first_epoch,
                                              .keys = {"eval_accuracy", "retrieval"}});
  const TrainerHooks hooks{.epoch = [&](std::int64_t epoch, const FitOptions& fit) -> std::optional<EpochReport> {
                             const auto made = training.run(epoch, fit);
                             if (!made) return std::nullopt;
                             last.epoch = *made;
                             bad_batches += made->bad_batches;
                             return made->report;
                           },
                           .evaluate =
                               [&] {
                                 last.quality = monitor();
                                 return std::vector<double>{last.quality.neighbours, last.epoch.retrieval, last.quality.deviation,
                                                            last.quality.effective_rank,
                                                            static_cast<double>(last.epoch.bad_batches)};
                               },
                           .text =
                               [&](const EpochRow& row) {
                                 log->epoch(row);
                                 std::vector<std::string> parts;
                                 if (std::isfinite(last.quality.neighbours))
                                   parts.push_back(fmt::format("neighbours {:.3f}", last.quality.neighbours));
                                 if (std::isfinite(last.epoch.retrieval))
                                   parts.push_back(fmt::format("pairs {:.3f}", last.epoch.retrieval));
                                 if (std::isfinite(last.quality.effective_rank))
                                   parts.push_back(fmt::format("rank {:.1f}", last.quality.effective_rank));
                                 return joined(parts, ", ") + trainer::remarks(row.report);
                               },
                           .before_checkpoint = [&] { objective.publish(); },
                           .after_checkpoint = [&] { objective.withdraw(); }};
  TrainerOptions options;
  options.fit.epochs = o.epochs, options.fit.first_epoch = first_epoch, options.fit.begin = began.position;
  options.fit.loss_scale = loss_scale.get();
  options.folder = out / "", options.replaces = o.overwrite && o.resume.empty();
  options.values = {"neighbour_accuracy", "retrieval", "collapse/deviation", "collapse/effective_rank", "bad_batches"};
  trainer::take_checkpoint_options(o, began, options);
  if (o.epochs > 0) trainer::take_local_copies(o, world, began, options);
  options.started = start, options.notes = notes;
  options.patience = o.patience, options.most_seconds = o.minutes * 60;
  options.progress = {.quiet = o.quiet || o.epochs == 0};
  std::int64_t epochs_behind = first_epoch;
  const auto save_weights = [&](const std::filesystem::path& path) {
    trainer::save(path, *net, world, {.info = {.step = optimizer->steps(), .epoch = epochs_behind, .notes = notes}});
  };
  return trainer::noted(world, out, save_weights, [&] {
    const auto result = mpigrad::train(*net, *optimizer, steps, world, hooks, options);
    epochs_behind = result.epochs_behind;
    if (log) log->end(result);
    if (result.interrupted) return trainer::ended_early(world, out, result, optimizer->steps());
    if (first_epoch == o.epochs) {
      last.quality = monitor();
      if (const auto& rows = result.epochs; !rows.empty() && rows.back().report.epoch + 1 == o.epochs)
        last.epoch.report.loss = rows.back().report.loss, last.epoch.retrieval = rows.back().values[1];
    }
    out.keep(world, weights_file, save_weights);
    if (!options.local_folder.empty()) remove_local_copies(world, options.local_folder);
    const auto usage = trainer::peak_usage(world);

    trainer::together(world, [&] {
      if (!first) return;
      if (!result.epochs.empty()) draw(out / picture_file, result.epochs);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const double rate = result.seconds > 0 ? result.samples / result.seconds : 0;
      nlohmann::ordered_json document{{"program", "contrastive"},
                                      {"command", "train"},
                                      {"loss", o.loss},
                                      {"precision", trainer::precision_of(o)},
                                      {"grid", trainer::to_json(extents)},
                                      {"ranks", world.size()},
                                      {"training_samples", samples.train.size()},
                                      {"views", loader->text()},
                                      {"parameters", net->parameters().elements()},
                                      {"epochs", o.epochs},
                                      {"epochs_behind", result.epochs_behind},
                                      {"final_loss", last.epoch.report.loss},
                                      {"retrieval", last.epoch.retrieval},
                                      {"neighbour_accuracy", last.quality.neighbours},
                                      {"deviation", last.quality.deviation},
                                      {"effective_rank", last.quality.effective_rank},
                                      {"bad_batches", bad_batches},
                                      {"seconds", seconds},
                                      {"training_seconds", result.seconds},
                                      {"samples_per_second", rate},
                                      {"out", out.folder()}};
      if (!result.stopped.empty()) document["stopped"] = result.stopped;
      trainer::add_checkpoints(document, o, result);
      trainer::add(document, usage);
      trainer::write_text(out / summary_file, tool::to_text(document) + "\n");
      if (o.json) {
        fmt::print("{}\n", tool::to_text(document));
        return;
      }
      if (std::isfinite(last.epoch.report.loss)) fmt::print("\nloss {:.4f}", last.epoch.report.loss);
      if (std::isfinite(last.epoch.retrieval)) fmt::print("; pairs found in the last batch {:.3f}", last.epoch.retrieval);
      if (std::isfinite(last.epoch.report.loss)) fmt::print("\n");
      if (bad_batches > 0) fmt::print("{} batches with samples that are not finite were left out\n", bad_batches);
      if (std::isfinite(last.quality.neighbours)) fmt::print("nearest neighbours are right in {:.3f}\n", last.quality.neighbours);
      if (std::isfinite(last.quality.deviation))
        fmt::print("collapse: deviation {:.3f} of 1, effective rank {:.1f}\n", last.quality.deviation,
                   last.quality.effective_rank);
      if (!result.stopped.empty()) fmt::print("ended after {} epochs: {}\n", result.epochs_behind, result.stopped);
      if (result.seconds > 0) fmt::print("{} training at {:.1f} samples/s, ", format_duration(result.seconds), rate);
      fmt::print("{}{} in all; {}{}\n", trainer::checkpoint_text(result), format_duration(seconds), trainer::to_string(usage),
                 trainer::checkpoint_advice(o, result));
      fmt::print("{}written to {}: {}\n", result.stragglers, out.folder(), joined(out.written(output_files(o)), ", "));
    });
    return 0;
  });
}

}  // namespace mpigrad::contrast
