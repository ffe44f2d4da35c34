#include "models/train/restart/checkpoints.h"

#include <algorithm>
#include <utility>

#include "comm/together.h"
#include "models/train/checkpoint/file.h"

namespace mpigrad {
namespace {

double between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// The assumed time to write a checkpoint until one has been written.
constexpr double unknown_seconds = 2;

}  // namespace

Checkpoints::Checkpoints(nn::Module& net, Optimizer& optimizer, const Communicator& world, const TrainerHooks& hooks,
                         const TrainerOptions& options, TrainerResult& result)
    : net_(net), optimizer_(optimizer), world_(world), hooks_(hooks), o_(options), result_(result), requests_(world) {
  const bool any = o_.checkpoint_every != 0 || o_.checkpoint_steps != 0 || o_.checkpoint_minutes != 0 || o_.checkpoint_first ||
                   o_.checkpoint_end || o_.keep_best || o_.time_limit_minutes != 0;
  require(o_.checkpoint_every >= 0 && o_.checkpoint_steps >= 0 && o_.checkpoint_minutes >= 0 && o_.time_limit_minutes >= 0 &&
              o_.keep >= 1 && (!any || !o_.folder.empty()),
          "[training] checkpoints every {} epochs, {} steps or {} minutes, {} of them kept, and a limit of {} minutes need a "
          "folder, and "
          "numbers from 0 on",
          o_.checkpoint_every, o_.checkpoint_steps, o_.checkpoint_minutes, o_.keep, o_.time_limit_minutes);
  if (any)  // before the training, not only when saving
    together(world_, [&] {
      if (world_.rank() != 0) return;
      require_replaceable(o_.folder / newest_checkpoint);
      if (o_.keep_best) require_replaceable(o_.folder / best_weights);
    });
  require(o_.local_steps >= 0 && (o_.local_steps == 0 || !o_.local_folder.empty()),
          "[training] local copies every {} steps need a folder, and a number from 0 on", o_.local_steps);
  if (o_.local_steps > 0) {
    bool parts = false;
    with_state([&] {
      parts = checkpoint_file::contents_of(checkpoint_file::tensors_of(net_, with_all({})), false, world_.rank()).shared;
    });
    local_.emplace(world_, local_folder(o_.local_folder, o_.local_training.name), o_.local_training,
                   LocalCopiesOptions{.parts = parts});
    if (local_->partner() < 0 && world_.rank() == 0 && !o_.progress.quiet)
      fmt::print(stderr, "warning: all ranks are on one node: local copies are lost if it fails\n");
    local_saver_.emplace(world_);
    reserve(*local_saver_);
  }
  if (o_.wait_for_checkpoints || !within_epochs()) return;
  saver_.emplace(world_);
  if (o_.checkpoint_steps > 0 || o_.checkpoint_minutes > 0) reserve(*saver_);
}

void Checkpoints::with_state(const std::function<void()>& f) const {
  if (hooks_.before_checkpoint) hooks_.before_checkpoint();
  try {
    f();
  } catch (...) {
    if (hooks_.after_checkpoint) hooks_.after_checkpoint();
    throw;
  }
  if (hooks_.after_checkpoint) hooks_.after_checkpoint();
}

void Checkpoints::reserve(CheckpointSaver& saver) const {
  with_state([&] { saver.reserve(net_, with_all({})); });
}

SaveOptions Checkpoints::with_all(CheckpointInfo info) const {
  info.notes = o_.notes;
  return {.optimizer = &optimizer_, .averages = o_.fit.averages, .loss_scale = o_.fit.loss_scale, .info = std::move(info)};
}

void Checkpoints::write_first(CheckpointInfo info) {
  if (!o_.checkpoint_first) return;
  const auto begin = Clock::now();
  const auto options = with_all(std::move(info));
  with_state([&] { together(world_, [&] { save_checkpoint(o_.folder / newest_checkpoint, net_, world_, options); }); });
  saved_ = Clock::now(), slowest_ = between(begin, saved_);
}

void Checkpoints::write_end(CheckpointInfo info) {
  if (o_.checkpoint_end && saved_epoch_ != info.epoch) save(std::move(info), true);
}

bool Checkpoints::due(std::int64_t step) {
  const auto now = Clock::now();
  if (last_step_) longest_step_ = std::max(longest_step_, between(*last_step_, now));
  last_step_ = now;
  note_wanted(asks() ? requests_.ask(reason()) : nothing);
  step_ = step;
  const auto every = [step](std::int64_t steps) { return steps > 0 && step % steps == 0; };
  return wanted_ != nothing || every(o_.checkpoint_steps) || local_due(step);
}

bool Checkpoints::write(CheckpointInfo info) {
  const bool shared = wanted_ != nothing || (o_.checkpoint_steps > 0 && step_ % o_.checkpoint_steps == 0);
  if (local_due(step_)) save_locally(info, step_);
  if (!shared) return false;
  save(std::move(info), wanted_ == limit || wanted_ == signal);
  return ends();
}

bool Checkpoints::after_epoch(const CheckpointInfo& info, std::int64_t step) {
  note_wanted(asks() ? requests_.now(reason()) : nothing);
  if (local_due(step)) save_locally(info, step);
  const bool steps = o_.checkpoint_steps > 0 && step % o_.checkpoint_steps == 0;
  const bool epochs = o_.checkpoint_every > 0 && info.epoch % o_.checkpoint_every == 0;
  if (wanted_ != nothing || steps || epochs) save(info, wanted_ == limit || wanted_ == signal || info.epoch == o_.fit.epochs);
  last_step_.reset();
  return ends();
}

void Checkpoints::write_best(const CheckpointInfo& info) {
  together(world_, [&] { save_checkpoint(o_.folder / best_weights, net_, world_, {.info = info}); });
}

Checkpoints::Reason Checkpoints::reason() const {
  if (notes_signals_ && NotedSignals::noted()) return signal;
  const auto now = Clock::now();
  const double margin = (slowest_ > 0 ? 1.5 * slowest_ : unknown_seconds) + 3 * longest_step_;
  if (o_.time_limit_minutes > 0 && between(o_.started, now) + margin > 60 * o_.time_limit_minutes) return limit;
  const bool time = o_.checkpoint_minutes > 0 && world_.rank() == 0 && between(saved_, now) > 60 * o_.checkpoint_minutes;
  if (time) return checkpoint;
  return notes_signals_ && NotedSignals::asked_for_report() ? report : nothing;
}

void Checkpoints::note_wanted(std::int64_t all) {
  wanted_ = all == report ? nothing : all;
  if (notes_signals_ && (wanted_ == limit || wanted_ == signal)) NotedSignals::end_training();
  if (all != report) return;
  NotedSignals::report_made();
  if (report_) report_();
}

void Checkpoints::save(CheckpointInfo info, bool last) {
  const auto begin = Clock::now();
  const auto step = info.step, epoch = info.epoch;
  const auto options = with_all(std::move(info));
  const auto path = o_.folder / newest_checkpoint;
  const auto keep = [this] {
    if (o_.keep > 1 && world_.rank() == 0) keep_checkpoint(o_.folder);
  };
  const auto remove_old = [this, step, begin] {
    if (world_.rank() == 0) remove_old_checkpoints(o_.folder, o_.keep - 1, step);
    slowest_ = std::max(slowest_.load(), between(begin, Clock::now()));
  };
  if (saver_ && !last) {
    bool staged = false;
    with_state([&] { staged = saver_->stage(path, net_, options, keep, remove_old); });
    if (!staged) return static_cast<void>(++result_.skipped_checkpoints);
    count_durable(), staged_ = true;
  } else {
    finish();
    together(world_, keep);
    with_state([&] {
      together(world_, [&] {
        save_checkpoint(path, net_, world_, options);
        remove_old();
      });
    });
    ++result_.checkpoints;
  }
  saved_ = Clock::now(), saved_epoch_ = epoch;
  last_step_.reset();
  const double seconds = between(begin, saved_);
  result_.checkpoint_seconds += seconds, result_.slowest_checkpoint = std::max(result_.slowest_checkpoint, seconds);
}

bool Checkpoints::local_due(std::int64_t step) {
  if (o_.local_steps == 0) return false;
  if (!copied_) copied_ = step - 1;
  return step / o_.local_steps > *copied_ / o_.local_steps;
}

void Checkpoints::save_locally(CheckpointInfo info, std::int64_t step) {
  copied_ = step;
  const auto begin = Clock::now();
  auto options = with_all(std::move(info));
  options.info.notes[training_note] = o_.local_training.name;
  const auto replicate = [this, at = options.info.step] { local_->replicate(at); };
  const auto settled = [this, at = options.info.step] {
    if (local_->parts()) local_->remove_others(at);
    std::error_code none;
    if (!o_.local_training.file.empty() && world_.rank() == 0)
      std::filesystem::last_write_time(o_.local_training.file, std::filesystem::file_time_type::clock::now(), none);
  };
  // Local copies are in addition to the checkpoints on the shared file system: training continues if they cannot be written.
  with_state([&] {
    warn_of_local([&] {
      const auto file = local_->file(options.info.step);
      const bool staged = local_->parts() ? local_saver_->stage_part(file, net_, options, replicate, settled)
                                          : local_saver_->stage(file, net_, options, {}, [=] { replicate(), settled(); });
      if (staged) ++result_.local_copies;
    });
  });
  result_.checkpoint_seconds += between(begin, Clock::now());
  last_step_.reset();
}

void Checkpoints::warn_of_local(const std::function<void()>& f) const {
  try {
    f();
  } catch (const std::exception& error) {  // the same on all ranks
    if (world_.rank() == 0) fmt::print(stderr, "warning: a local copy is missing: {}\n", error.what());
  }
}

void Checkpoints::count_durable() {
  if (std::exchange(staged_, false)) ++result_.checkpoints;
}

void Checkpoints::finish() {
  if (local_saver_) warn_of_local([&] { local_saver_->finish(); });
  if (!saver_) return;
  saver_->finish();
  count_durable();
}

bool Checkpoints::ends() {
  if (wanted_ != limit && wanted_ != signal) return false;
  result_.interrupted = true;
  const auto* name = NotedSignals::noted();
  result_.stopped = wanted_ == limit ? fmt::format("the limit of {} is near", format_duration(60 * o_.time_limit_minutes))
                                     : fmt::format("{} came", name ? name : "a signal to another rank");
  return true;
}

}  // namespace mpigrad
