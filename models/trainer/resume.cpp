#include "models/trainer/resume.h"

#include <algorithm>
#include <cstdio>

#include "framework/base/joined.h"
#include "models/train/restart/local_copies.h"
#include "models/train/training_log.h"
#include "models/trainer/data_check.h"
#include "models/trainer/ranks/local_training.h"

namespace mpigrad::trainer {
namespace {

// The checkpoints that --resume names, the best first; empty if there is nothing to resume.
std::vector<std::string> files_to_resume(const Options& o, const Communicator& world) {
  std::vector<std::string> files;
  std::error_code error;
  const bool newest = o.resume == newest_in_out && !std::filesystem::exists(o.resume, error);
  const std::filesystem::path path = newest ? o.out : o.resume;
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    if (!newest && !std::filesystem::exists(path, error))
      throw UsageError(fmt::format("[resume] there is no checkpoint {}", path.string()));
    if (!newest && !std::filesystem::is_directory(path, error)) return files.push_back(path.string());
    const auto found = find_checkpoints(path);
    for (const auto& reason : found.skipped) fmt::print(stderr, "warning: skipped: {}\n", reason);
    for (const auto& file : found.files) files.push_back(file.string());
    if (!newest && files.empty()) throw UsageError(fmt::format("[resume] no checkpoint in {} can be resumed", path.string()));
    if (o.training.local_folder.empty())
      require(!files.empty() || found.skipped.empty(),
              "[resume] no checkpoint in {} is whole; without --resume training begins again", path.string());
  });
  files = shared_lines(world, files);
  if (o.training.local_folder.empty() || !newest) return files;
  std::int64_t step = -1;
  trainer::together(world, [&] {
    if (world.rank() == 0 && !files.empty()) step = read_checkpoint_info(files.front()).step;
  });
  world.transport().bcast(&step, 1, DType::int64, 0);
  const TrainingName training{training_in(o, world), training_name_file(o)};
  LocalCopy copy;
  if (!training.name.empty()) require_own_copies(o, world, training);
  try {
    if (!training.name.empty())
      copy = find_local_copy(world, local_folder(o.training.local_folder, training.name), training, step);
  } catch (const SharedError& error) {
    if (world.rank() == 0) fmt::print(stderr, "warning: local copies are not looked at: {}\n", error.what());
  }
  if (!copy.lacking.empty() && world.rank() == 0) fmt::print(stderr, "warning: skipped: {}\n", copy.lacking);
  if (copy.rank < 0) return files;
  if (world.rank() == 0 && !o.quiet) fmt::print(stderr, "the node of rank {} has a newer checkpoint\n", copy.rank);
  files.insert(files.begin(), copy.file.string());
  return files;
}

}  // namespace

bool replaces(const Options& o) {
  if (o.explain) return true;
  if (o.overwrite || o.resume != newest_in_out) return o.overwrite;
  if (!o.training.local_folder.empty()) return true;  // start_from_files finds them, and refuses if there are none
  const auto found = find_checkpoints(o.out);         // without one nothing is resumed
  return !found.files.empty() || !found.skipped.empty();
}

namespace {

// Loads the parts of network.weights that network.take names.
void take(const Options& o, const Communicator& world, nn::Module& net) {
  TakeOptions options;
  if (o.take.front() != "common")
    for (const auto& text : o.take) {
      const auto equals = text.find('=');
      options.patterns.push_back({text.substr(0, equals), equals == std::string::npos ? "" : text.substr(equals + 1)});
    }
  TakenWeights taken;
  of_input(world, [&] {
    taken = take_weights(o.weights, net, options);
    require(!taken.taken.empty(), "[weights] {} has nothing that this network could take", o.weights);
  });
  require_same_file(world, o.weights, read_checkpoint_info(o.weights));
  if (world.rank() != 0 || o.quiet) return;
  const auto some = [](const std::vector<std::string>& names) {
    constexpr std::size_t most = 8;
    const std::vector<std::string> shown(names.begin(),
                                         names.begin() + static_cast<std::ptrdiff_t>(std::min(most, names.size())));
    return names.empty() ? "" : fmt::format(": {}{}", joined(shown, ", "), names.size() > most ? ", ..." : "");
  };
  fmt::print(stderr, "{}: {} tensors taken{}\n  {} of the network stay as they were{}\n  {} of the file are not used{}\n",
             o.weights, taken.taken.size(), some(taken.taken), taken.left.size(), some(taken.left), taken.unused.size(),
             some(taken.unused));
}

}  // namespace

Start start_from_files(const Options& o, const Communicator& world, nn::Module& net, Optimizer& optimizer,
                       AveragedWeights* averages, LossScale* loss_scale, std::int64_t steps, const Notes& notes,
                       const std::vector<std::string>& decisive) {
  of_input(world, [&] {
    for (const auto& pattern : o.freeze) net.parameters().freeze(pattern);
  });
  if (!o.weights.empty() && !o.take.empty()) take(o, world, net);
  else if (!o.weights.empty()) load_weights(o.weights, world, net);
  if (o.resume.empty()) return {};
  const bool first = world.rank() == 0;
  const auto files = files_to_resume(o, world);
  if (files.empty() && !o.training.local_folder.empty() && !o.overwrite)
    trainer::together(world, [&] {
      std::error_code error;
      for (const auto* name : {TrainingLog::file, weights_file, summary_file, newest_checkpoint}) {
        const auto file = std::filesystem::path(o.out) / name;
        if (first && std::filesystem::exists(file, error))
          throw UsageError(fmt::format(
              "[resume] there is no checkpoint of the training whose {} is there; --overwrite begins anew", file.string()));
      }
    });
  if (files.empty() && first && !o.quiet) fmt::print(stderr, "no checkpoint in {}: training begins\n", o.out);
  for (const auto& file : files) {
    CheckpointInfo info;
    const auto before = [&](const std::string& name) {
      const auto found = info.notes.find(name);
      return found == info.notes.end() ? "unknown" : found->second;
    };
    // A damaged file is skipped if there are others; a file of another training is an error.
    const auto skip = [&](const std::function<void()>& f) {
      const auto failure = mpigrad::detail::first_failure(world.transport(), f);
      if (failure.failed && &file == &files.back()) throw SharedError(failure.text);
      if (failure.failed && first) fmt::print(stderr, "warning: skipped: {}\n", failure.text);
      return failure.failed;
    };
    if (skip([&] { info = read_checkpoint_info(file); })) continue;
    of_input(world, [&] {
      // Checked before tensors are loaded: another optimizer may have tensors of the same shapes, and other test samples may have
      // been trained on.
      for (const auto& name : decisive)
        require(before(name) == notes.at(name), "[resume] {} was trained with {} {}, now it is {}", file, name, before(name),
                notes.at(name));
      require_same_contents(world, file, info, notes);
      require(info.averages == (averages != nullptr),
              "[resume] {} was trained {} averaged weights (optimizer.average_weights), now it is {} them", file,
              info.averages ? "with" : "without", averages ? "with" : "without");
      require(info.epoch <= o.training.fit.epochs, "[resume] {} has {} epochs behind it; --epochs {} asks for fewer", file,
              info.epoch, o.training.fit.epochs);
      require(info.epoch_step == 0 || info.epoch_steps == steps,
              "[resume] {} is {} steps into an epoch of {}; now an epoch has {}: schedule.batch and schedule.accumulate must be "
              "the same",
              file, info.epoch_step, info.epoch_steps, steps);
      refuse_changes(o, file, info.notes, notes);
    });
    if (skip([&] { load_checkpoint(file, net, {.optimizer = &optimizer, .averages = averages, .loss_scale = loss_scale}); }))
      continue;
    require_same_file(world, file, info);
    if (first) list_changes(file, info.notes, notes);
    if (first && !o.quiet && (files.size() > 1 || file != o.resume))
      fmt::print(stderr, "going on from {}: {} epochs and {} steps\n", file, info.epoch, info.epoch_step);
    Start start{info.epoch, {info.epoch_step, RunningMean::of(info.epoch_loss, info.epoch_samples)}};
    if (o.resume != newest_in_out) {
      std::error_code none;  // ignored: --out may not exist yet
      std::int64_t elsewhere = !std::filesystem::equivalent(std::filesystem::absolute(file).parent_path(), o.out, none);
      world.transport().bcast(&elsewhere, 1, DType::int64, 0);
      start.uncovered = elsewhere != 0;
    }
    // If a file was named, copies in the folder may be newer than the continued training, so it draws a new name.
    if (!o.training.local_folder.empty() && o.resume == newest_in_out) start.training = training_in(o, world);
    return start;
  }
  return {.uncovered = true};
}

}  // namespace mpigrad::trainer
