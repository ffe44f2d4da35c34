#include "models/trainer/run_training.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "framework/base/joined.h"
#include "models/train/profile.h"
#include "models/train/restart/interruption.h"
#include "models/train/restart/interval.h"
#include "models/train/restart/local_copies.h"
#include "models/train/tensorboard/events.h"
#include "models/train/workers/noise_scale.h"
#include "models/trainer/ranks/local_training.h"

namespace mpigrad::trainer {

std::vector<std::string> checkpoint_files(const Options& o) {
  if (o.training.fit.epochs == 0) return {};
  std::vector<std::string> files{newest_checkpoint};
  if (o.training.keep_best) files.emplace_back(best_weights);
  return files;
}

std::vector<std::string> training_files(const Options& o, const std::vector<std::string>& own) {
  std::vector<std::string> files{weights_file};
  files.insert(files.end(), own.begin(), own.end());
  files.insert(files.end(), {summary_file, recipe_file, TrainingLog::file});
  if (o.training.fit.epochs > 0 && o.resume.empty() && tensorboard::available()) files.push_back(tensorboard::event_file_name(0));
  for (auto& file : checkpoint_files(o)) files.push_back(std::move(file));
  if (o.profile) files.emplace_back(trace_file);
  if (o.mllog) files.emplace_back(mllog_file);
  return files;
}

std::vector<std::string> protected_files(const Options& o, std::vector<std::string> files) {
  // A job that died before its first checkpoint and is restarted has only begun this file.
  if (o.resume == newest_in_out) std::erase(files, mllog_file);
  return files;
}

namespace {

// Seconds for which training stops for a checkpoint; none: unknown.
std::optional<double> cost_of_checkpoint(const TrainerResult& result) {
  if (result.checkpoints == 0 || result.checkpoint_seconds <= 0) return std::nullopt;
  return result.checkpoint_seconds / static_cast<double>(result.checkpoints);
}

}  // namespace

void add_checkpoints(nlohmann::ordered_json& run, const Options& o, const TrainerResult& result) {
  if (result.checkpoints > 0) {
    run["checkpoints"] = result.checkpoints, run["checkpoints_skipped"] = result.skipped_checkpoints;
    run["checkpoint_seconds"] = result.checkpoint_seconds;
  }
  if (o.training.local_steps > 0) run["local_copies"] = result.local_copies;
  if (const auto cost = cost_of_checkpoint(result); o.mtbf > 0 && cost)
    run["best_checkpoint_minutes"] = best_checkpoint_interval(*cost, o.mtbf * 3600) / 60;
}

std::string checkpoint_text(const TrainerResult& result) {
  if (result.checkpoints == 0) return {};
  return fmt::format("{:.1f} s for {} checkpoints{}, ", result.checkpoint_seconds, result.checkpoints,
                     result.skipped_checkpoints > 0
                         ? fmt::format(" ({} skipped: the one before was not on the disk yet)", result.skipped_checkpoints)
                         : "");
}

std::string checkpoint_advice(const Options& o, const TrainerResult& result) {
  const auto cost = cost_of_checkpoint(result);
  if (o.mtbf == 0 || !cost) return {};
  return fmt::format("\nwith a failure every {:g} hours, checkpoints of {:.3f} s lose the least time every {:.1f} minutes",
                     o.mtbf, *cost, best_checkpoint_interval(*cost, o.mtbf * 3600) / 60);
}

TrainingMlLog::TrainingMlLog(const Communicator& world, const Outputs& out, const Options& o, About about)
    : about_(std::move(about)), epochs_(o.training.fit.epochs) {
  trainer::together(world, [&] {
    if (world.rank() == 0 && o.mllog) log_.emplace(out / mllog_file);
  });
  if (!log_) return;
  log_->start("init_start"), log_->point("submission_benchmark", about_.program);
  log_->point("seed", o.seed), log_->point("global_batch_size", o.batch), log_->point("train_samples", about_.samples);
  log_->point("opt_name", o.optimizer), log_->point("opt_base_learning_rate", o.optimizer_options.learning_rate);
  if (about_.evaluated > 0) log_->point("eval_samples", about_.evaluated);
  log_->point("gradient_accumulation_steps", o.training.fit.accumulate);
  log_->point("opt_weight_decay", o.optimizer_options.weight_decay), log_->point("opt_momentum", o.optimizer_options.momentum);
  log_->point("opt_learning_rate_warmup_epochs", o.warm_up),
      log_->point("opt_learning_rate_warmup_factor", 0);  // the rate rises from 0
  const bool falls = o.schedule == "step";
  log_->point("opt_learning_rate_decay_boundary_epochs", falls ? boundaries_of(o) : std::vector<double>());
  log_->point("opt_learning_rate_decay_factor", falls ? o.decay_factor : 1.0);
  for (const auto& entry : o.mllog_entries) {
    const auto equals = entry.find('=');
    log_->point(entry.substr(0, equals), entry.substr(equals + 1));
  }
  log_->end("init_stop"), log_->start("run_start");
  if (about_.first_epoch < epochs_) log_->start("epoch_start", {{"epoch_num", about_.first_epoch + 1}});
}

std::function<std::vector<double>()> TrainingMlLog::evaluation(std::function<std::vector<double>()> evaluate) {
  if (!log_ || !evaluate) return evaluate;
  return [this, evaluate = std::move(evaluate)] {
    const nlohmann::ordered_json epoch{{"epoch_num", about_.first_epoch + ++evaluation_}};
    log_->start("eval_start", epoch);
    auto values = evaluate();
    log_->end("eval_stop", epoch);
    return values;
  };
}

void TrainingMlLog::epoch(const EpochRow& row) {
  if (!log_) return;
  const nlohmann::ordered_json epoch{{"epoch_num", row.report.epoch + 1}};
  log_->point("train_loss", row.report.loss, epoch), log_->end("epoch_stop", epoch);
  for (std::size_t i = 0; i < row.values.size() && i < about_.keys.size(); ++i) log_->point(about_.keys[i], row.values[i], epoch);
  if (about_.accuracy) log_->point("eval_accuracy", about_.accuracy(row.values), epoch);
  if (row.report.epoch + 1 < epochs_) log_->start("epoch_start", {{"epoch_num", row.report.epoch + 2}});
}

void TrainingMlLog::end(const TrainerResult& result) {
  if (log_) log_->end("run_stop", {{"status", result.interrupted ? "aborted" : "success"}, {"epoch_num", result.epochs_behind}});
}

int ended_early(const Communicator& world, const Outputs& out, const TrainerResult& result, std::int64_t steps) {
  const auto text =
      fmt::format("{} after {} steps; --resume goes on from {}", result.stopped, steps, (out / newest_checkpoint).string());
  if (world.rank() == 0) fmt::print(stderr, "{}: {}\n", out.folder(), text);
  out.note(interrupted_state, text);
  return to_be_resumed;
}

std::vector<OutputFile> files_to_try(const Options& o, nn::Module& net, const Optimizer& optimizer, bool half_weights,
                                     std::int64_t first_step) {
  const auto bytes_of = [](const Tensor& x) {
    return (x.layout() ? x.layout()->global : x.shape()).elements() * size_of(x.dtype());
  };
  std::int64_t weights = 0, state = 0;
  for (std::size_t i = 0; i < net.parameters().size(); ++i) weights += bytes_of(net.parameters()[i].value);
  for (const auto& tensor : optimizer.state()) state += bytes_of(tensor.value);
  // A signal may cause a checkpoint in any training; if none is asked for, failing to write one is not an error.
  const bool checkpoints = o.training.checkpoint_every > 0 || o.training.checkpoint_steps > 0 ||
                           o.training.checkpoint_minutes > 0 || o.training.time_limit_minutes > 0 || !o.resume.empty();
  std::vector<OutputFile> files{{newest_checkpoint, checkpoints ? weights + state : 0},
                                {weights_file, half_weights ? weights / 2 : weights},
                                {summary_file},
                                {state_file}};
  if (o.training.fit.epochs > 0) files.push_back({TrainingLog::file});
  if (o.training.fit.epochs > 0 && tensorboard::available()) files.push_back({tensorboard::event_file_name(first_step)});
  if (o.training.keep_best) files.push_back({best_weights, weights});
  if (o.profile) files.push_back({trace_file});
  if (o.mllog) files.push_back({mllog_file});
  files.push_back({recipe_file});
  if (!o.training.local_folder.empty()) files.push_back({training_name_file(o).filename().string()});
  return files;
}

int noted(const Communicator& world, const Outputs& out, const std::function<void(const std::filesystem::path& path)>& write,
          const std::function<int()>& training) {
  out.note(running_state);
  try {
    const int code = training();
    if (code != to_be_resumed) out.note(finished_state);
    return code == 0 && out.moved() ? 1 : code;
  } catch (const SharedError& error) {
    out.note(failed_state, error.what());
    if (!out.moved() && !out.settle(world)) {
      write(out / weights_file);
      if (world.rank() == 0) fmt::print(stderr, "the weights so far are in {}\n", (out / weights_file).string());
    }
    throw;
  } catch (const std::exception& error) {
    out.note(failed_state, error.what());
    throw;
  }
}

namespace {

// options.training, with what is known when the training starts.
TrainerOptions options_of(const Options& o, const Outputs& out, const Training& s, const Start& start) {
  auto options = o.training;
  options.fit.first_epoch = start.epoch, options.fit.begin = start.position;
  options.folder = out / "", options.values = s.values, options.replaces = o.overwrite && o.resume.empty();
  options.started = out.started(), options.notes_signals = true;
  // Otherwise a job that dies before its first checkpoint is refused when it is restarted, or starts from elsewhere.
  options.checkpoint_first = start.uncovered && start.epoch < options.fit.epochs;
  options.checkpoint_end = o.resume == newest_in_out || options.checkpoint_first;
  options.progress.quiet = o.quiet || options.fit.epochs == 0;
  if (options.monitor.empty()) options.monitor = s.monitor.empty() ? s.values.front() : s.monitor;
  if (options.monitor != "train_loss" && std::find(s.values.begin(), s.values.end(), options.monitor) == s.values.end())
    throw UsageError(
        fmt::format("schedule.metric is train_loss or one of {}, not '{}'", joined(s.values, ", "), options.monitor));
  return options;
}

}  // namespace

int run_training(const Communicator& world, const Options& o, const GridExtents& grid, const Outputs& out, const Training& s) {
  const auto start = out.started();
  const bool first = world.rank() == 0;
  if (o.noise_scale && (world.size() == 1 || grid.sample != world.size() || o.sharded_weights))
    throw UsageError(
        "report.noise_scale is measured where each of several ranks has samples of its own and whole weights: --grid "
        "sample=RANKS");
  const auto optimizer = s.optimizer ? s.optimizer(s.net) : make_optimizer(s.net, o);
  const auto loss_scale = make_loss_scale(o, world);
  const auto averages = make_averages(s.net.parameters(), o);
  const auto* loader = s.loader ? &s.loader->get() : nullptr;
  const auto steps = loader ? optimizer_steps(*loader, o.training.fit.accumulate) : s.own.steps;
  const bool trains = o.training.fit.epochs > 0;
  auto notes = s.notes;
  if (averages) notes[averages_note] = fmt::format("decay {}", o.average_weights);
  const bool silent = o.communication == "none";
  if (!silent && !o.explain) out.lock(world, patience_of(o));
  notes.merge(option_notes(o, steps));
  const bool resumes = !o.resume.empty();
  if (resumes && s.hooks.before_checkpoint) s.hooks.before_checkpoint();
  const auto began = start_from_files(o, world, s.net, *optimizer, averages.get(), loss_scale.get(), steps, notes, s.decisive);
  if (s.started) s.started();
  if (resumes && s.hooks.after_checkpoint) s.hooks.after_checkpoint();
  const auto first_epoch = began.epoch;
  auto options = options_of(o, out, s, began);
  options.fit.learning_rate = make_schedule(o, steps);
  options.fit.averages = averages.get(), options.fit.loss_scale = loss_scale.get();
  const auto files = files_to_try(o, s.net, *optimizer, s.half_weights, steps_before(*optimizer, options.fit, steps));
  std::optional<StepProfile> profile;
  if (o.profile) options.fit.profile = &profile.emplace(world);
  GradientNoise noise;
  if (o.noise_scale && !silent) options.fit.noise = &noise;
  if (o.explain) {
    explain(world, {.options = o,
                    .training = options,
                    .net = s.net,
                    .optimizer = *optimizer,
                    .loader = loader,
                    .grid = grid,
                    .steps = steps,
                    .notes = notes,
                    .files = files,
                    .more = s.explained ? s.explained() : std::vector<Explained>()});
    return 0;
  }
  if (!silent) {
    out.create(world, files);
    write_recipe(world, out, o, grid, notes, first_epoch);
    if (trains) take_local_copies(o, world, began, options);
    else options.local_steps = 0;
  }
  if (first && !o.json)
    fmt::print("{}\n{} parameters, grid {}, {} steps of {} samples per epoch\n", s.headline, s.net.parameters().elements(),
               to_string(grid), steps, o.batch);
  if (loader && first && !o.json && o.store > 0) {
    const auto store = loader->stored();
    fmt::print("the store has room for {} of {} samples{}\n", store.room, store.of,
               store.room < store.of ? "; the others are read from their files in every epoch" : "");
  }
  if (first && !o.json && !s.remark.empty()) fmt::print("{}\n", s.remark);
  std::fflush(stdout);

  auto keys = loader ? s.values : s.own.log_keys;
  if (loader && !keys.empty() && !s.accuracy) keys.front() = "eval_error";
  std::optional<TrainingMlLog> log;
  if (!silent && trains)
    log.emplace(world, out, o,
                TrainingMlLog::About{.program = s.program,
                                     .samples = loader ? loader->samples() : s.own.samples,
                                     .evaluated = s.evaluated_samples,
                                     .first_epoch = first_epoch,
                                     .keys = std::move(keys),
                                     .accuracy = s.accuracy});

  notes.insert(s.more_notes.begin(), s.more_notes.end());
  options.notes = notes;
  auto hooks = s.hooks;
  if (log && loader) hooks.evaluate = log->evaluation(s.hooks.evaluate);
  hooks.text = [&](const EpochRow& row) {
    log->epoch(row);
    return s.hooks.text(row) + remarks(row.report);
  };
  if (silent) {
    TrainerOptions bare{.fit = options.fit, .most_minutes = options.most_minutes, .progress = options.progress};
    // Gradients without communication are wrong, and weights would grow. Rows that other ranks update become zeros.
    bare.fit.learning_rate = [](std::int64_t) { return 0.0; };
    const auto result = mpigrad::train(s.net, *optimizer, *loader, world, {.loss = s.hooks.loss}, bare);
    if (first && o.json)
      fmt::print("{}\n", tool::to_text({{"program", s.program},
                                        {"communication", "none"},
                                        {"samples_per_second", result.samples / result.seconds}}));
    else if (first) fmt::print("{:.2f} samples/s without communication; nothing is written\n", result.samples / result.seconds);
    return 0;
  }
  std::int64_t epochs_done = first_epoch;
  const auto save_weights = [&](const std::filesystem::path& path) {
    save(path, s.net, world,
         {.info = {.step = optimizer->steps(), .epoch = epochs_done, .notes = notes}, .half = s.half_weights});
  };
  const auto save_at_failure = [&](const std::filesystem::path& path) {
    if (averages && averages->updates() > 0 && !averages->swapped()) averages->swap();
    save_weights(path);
  };
  return noted(world, out, save_at_failure, [&] {
    // A signal does not end the program before the weights are written.
    std::optional<NotedSignals> signals(std::in_place);
    const auto result = loader ? mpigrad::train(s.net, *optimizer, *loader, world, hooks, options)
                               : mpigrad::train(s.net, *optimizer, steps, world, hooks, options);
    NotedSignals::second_ends();
    epochs_done = result.epochs_behind;
    if (log) log->end(result);
    if (result.interrupted) return ended_early(world, out, result, optimizer->steps());
    if (averages) averages->swap();                                // evaluated and written from here on
    if (first_epoch == o.training.fit.epochs) s.hooks.evaluate();  // only the last files are missing
    out.keep(world, weights_file, save_weights);
    signals.reset();
    if (profile) {
      const auto table = profile->write(out / trace_file);
      if (first) fmt::print(o.json ? stderr : stdout, "{}", table);
      if (first && !profile->complete())
        fmt::print(stderr, "warning: the training had fewer steps than report.profile looks at\n");
    }
    if (options.local_steps > 0) remove_local_copies(world, local_folder(options.local_folder, options.local_training.name));
    if (s.half_weights) load_weights((out / weights_file).string(), world, s.net);  // evaluates what the file holds
    if (s.finish) s.finish();
    const auto usage = peak_usage(world);
    trainer::together(world, [&] {
      if (!first) return;
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const double rate = result.seconds > 0 ? result.samples / result.seconds : 0;
      nlohmann::ordered_json run{{"program", s.program},
                                 {"precision", precision_of(o)},
                                 {"loss_scale", loss_scale ? loss_scale->value() : 1},
                                 {"skipped_steps", loss_scale ? loss_scale->skipped() : 0},
                                 {"grid", to_json(grid)},
                                 {"ranks", world.size()},
                                 {"average_weights", o.average_weights},
                                 {"parameters", s.net.parameters().elements()},
                                 {"epochs_behind", result.epochs_behind},
                                 {"seconds", seconds},
                                 {"training_seconds", result.seconds},
                                 {"samples_per_second", rate},
                                 {"waiting_seconds", result.waiting_seconds}};
      if (loader && o.store > 0) {
        const auto stored = loader->stored();
        run["store"] = {{"samples", stored.samples}, {"of", stored.of}, {"bytes", stored.bytes}};
      }
      if (!result.stopped.empty()) run["stopped"] = result.stopped;
      add_checkpoints(run, o, result);
      if (o.noise_scale) {
        const auto number = [](double x) { return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(); };
        run["noise_steps"] = noise.steps();  // null below: undefined, for example if the gradient is only noise
        run["noise_scale"] = number(noise.value()), run["critical_batch"] = number(noise.critical_batch());
      }
      add(run, usage);
      std::string text =
          result.stopped.empty() ? "" : fmt::format("ended after {} epochs: {}\n", result.epochs_behind, result.stopped);
      if (result.seconds > 0) text += fmt::format("{} training at {:.1f} samples/s, ", format_duration(result.seconds), rate);
      if (loader && result.seconds > 0)
        text += fmt::format("{:.1f} % of it waiting for data, ", 100 * result.waiting_seconds / result.seconds);
      text += checkpoint_text(result) + fmt::format("{} in all; {}", format_duration(seconds), to_string(usage));
      text += checkpoint_advice(o, result);
      if (o.noise_scale) {
        const auto samples = [](double x) {
          return std::isfinite(x) ? fmt::format("{:.4g} samples", x) : std::string("undefined");
        };
        text += fmt::format("\ngradient noise scale, of {} steps: {} at the end, {} over the training", noise.steps(),
                            samples(noise.value()), samples(noise.critical_batch()));
        if (std::isfinite(noise.critical_batch()))
          text += fmt::format("; with many more samples than that in a step, more ranks do not learn faster; now there are {}",
                              o.batch);
      }
      if (!result.stragglers.empty()) text += "\n" + result.stragglers.substr(0, result.stragglers.size() - 1);
      s.report(std::move(run), result, text);
    });
    return 0;
  });
}

}  // namespace mpigrad::trainer
