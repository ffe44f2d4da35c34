// Options that exclude each other, and options without an effect.

#include <algorithm>
#include <cstdio>
#include <utility>

#include "framework/base/joined.h"
#include "models/trainer/options.h"

namespace mpigrad::trainer {

void check_device(const Options& o) {
  if (o.autotune && current_device() != DeviceKind::cuda)
    throw UsageError("precision.autotune times the kernels of a GPU: it needs --device cuda");
  if (o.training.fit.graph && current_device() != DeviceKind::cuda)
    throw UsageError("precision.graph repeats the work of a GPU: it needs --device cuda");
}

void check(const Options& o) {
  if (o.batch % o.training.fit.accumulate != 0)
    throw UsageError(fmt::format("schedule.batch {} cannot be computed in schedule.accumulate {} equal micro-batches", o.batch,
                                 o.training.fit.accumulate));
  if (o.describe && o.explain) throw UsageError("--describe and --explain: one of the two");
  if (o.describe) return;
  if (o.size != 0) throw UsageError("--size is for --describe; a training's volumes have their own size");
  check_device(o);
  if (o.communication == "none" && current_device() != DeviceKind::cpu)
    throw UsageError("grid.communication none is for --device cpu");
  const auto grid = parse_grid(o.grid, 1, Channels::split);
  for (const auto* key : {"grid.boundaries", "grid.pipeline"})
    if (o.given.contains(key) && grid.stage == 1)
      throw UsageError(fmt::format("{} is for a pipeline, and --grid has no stages", key));
  if (grid.stage > 1 && grid.channel > 1) throw UsageError("--grid: stage is not combined with filter and channel");
  if (grid.stage > 1 && (o.sharded_weights || !o.grid_of.empty() || !o.onnx.empty() || o.communication == "none"))
    throw UsageError(
        "with stages in --grid there are no grid.layers, grid.sharded_weights, report.onnx and no grid.communication none");
  if (o.profile && current_device() != DeviceKind::cpu) throw UsageError("report.profile is for --device cpu");
  if (o.data.empty()) throw UsageError("--data is needed");
  if (o.out.empty()) throw UsageError("--out must not be empty");
  if (!o.weights.empty() && !o.resume.empty()) throw UsageError("--weights and --resume: one of the two");
  for (const auto& entry : o.mllog_entries)
    if (entry.find('=') == std::string::npos || entry.front() == '=')
      throw UsageError("report.mllog_entries are NAME=TEXT, not " + entry);
  if (!o.mllog_entries.empty() && !o.mllog) throw UsageError("report.mllog_entries needs report.mllog");
  if (o.training.local_folder.empty() != (o.training.local_steps == 0))
    throw UsageError("checkpoint.local_folder and checkpoint.local_steps: both or none");
  if (!o.take.empty() && o.weights.empty()) throw UsageError("network.take is of network.weights");
  if (o.allow_changes && o.resume.empty()) throw UsageError("checkpoint.allow_changes is of --resume");
  if (o.take.size() > 1 && std::find(o.take.begin(), o.take.end(), "common") != o.take.end())
    throw UsageError("network.take: `common`, or patterns");
  if (o.training.fit.epochs == 0) throw UsageError("--epochs 0 trains nothing: the command `evaluate` scores weights");
  if (o.training.larger_is_better && o.training.monitor.empty())
    throw UsageError("schedule.larger_is_better is of schedule.metric: without one the training looks at a loss");
  if (!std::is_sorted(o.milestones.begin(), o.milestones.end())) throw UsageError("schedule.milestones ascend");
  for (const auto& [option, shape] :
       {std::pair{"schedule.milestones", "step"}, {"schedule.decay_factor", "step"}, {"schedule.power", "polynomial"}})
    if (o.given.contains(option) && o.schedule != shape)
      throw UsageError(fmt::format("{} is of schedule.shape {}, not of {}", option, shape, o.schedule));
  if (o.given.contains("optimizer.momentum") && !takes_momentum(o))
    throw UsageError(fmt::format("optimizer.momentum is of optimizer.name {}, not of {}",
                                 joined(optimizers_with_momentum(), " and "), o.optimizer));
  if (o.nesterov && (o.optimizer != "sgd" || o.optimizer_options.momentum == 0))
    throw UsageError(
        fmt::format("optimizer.nesterov is of optimizer.name sgd with an optimizer.momentum above 0, not of {} with {}",
                    o.optimizer, o.optimizer_options.momentum));
}

void warn_of(const Options& o, const std::vector<NoEffect>& table, int rank) {
  auto given = o.given;
  if (o.overwrite) given.insert("--overwrite");
  for (const auto& row : table)
    for (const auto* key : row.keys)
      if (row.idle && rank == 0 && given.contains(key)) fmt::print(stderr, "warning: {} has no effect: {}\n", key, row.why);
}

void warn(const Options& o, const std::set<std::string>& own, int rank) {
  auto effective = own;
  if (o.describe) {
    effective.insert({"data.path", "grid.extents", "grid.boundaries", "grid.pipeline", "grid.layers", "grid.sharded_weights",
                      "schedule.batch", "schedule.accumulate", "precision.compute", "network.keep", "optimizer.name",
                      "optimizer.momentum", "optimizer.replicated", "network.statistics"});
    tool::warn_of_no_effect(o.given, effective, "--describe", rank);
    return;
  }
  const auto& t = o.training;
  const bool several = t.checkpoint_every > 0 || t.checkpoint_steps > 0 || t.checkpoint_minutes > 0;
  const bool silent = o.communication == "none";
  const char* single = "without checkpoint.epochs, checkpoint.steps or checkpoint.minutes at most one checkpoint is written";
  warn_of(o,
          {{t.patience == 0 && !t.keep_best,
            {"schedule.metric", "schedule.larger_is_better"},
            "it is of schedule.patience and checkpoint.best"},
           {!silent && !several && o.resume.empty(), {"checkpoint.keep"}, single},
           {!silent && !several, {"checkpoint.wait"}, "it is of checkpoint.epochs, checkpoint.steps and checkpoint.minutes"},
           {!silent && !several && o.resume.empty(), {"checkpoint.mtbf"}, "it is an advice from the times of checkpoints"},
           {silent,
            {"checkpoint.epochs", "checkpoint.steps", "checkpoint.minutes", "checkpoint.keep", "checkpoint.best",
             "checkpoint.wait", "checkpoint.mtbf", "checkpoint.time_limit", "checkpoint.local_folder", "checkpoint.local_steps",
             "schedule.patience", "report.mllog", "report.mllog_entries", "report.noise_scale", "report.profile"},
            "grid.communication none writes nothing"}},
          rank);
  if (rank != 0) return;
  const auto epochs = static_cast<double>(o.training.fit.epochs);
  if (o.warm_up > epochs)
    fmt::print(stderr, "warning: schedule.warm_up {}: the learning rate still rises after {} epochs\n", o.warm_up,
               o.training.fit.epochs);
  if (!o.milestones.empty() && o.milestones.back() >= epochs)
    fmt::print(stderr, "warning: schedule.milestones {}: nothing is lowered after the last of {} epochs\n", o.milestones.back(),
               o.training.fit.epochs);
  if (o.training.checkpoint_every > o.training.fit.epochs && o.resume.empty())
    fmt::print(stderr, "warning: checkpoint.epochs {}: {} epochs write no checkpoint\n", o.training.checkpoint_every,
               o.training.fit.epochs);
}

}  // namespace mpigrad::trainer
