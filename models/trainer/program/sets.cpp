// Chooses the samples that a training learns from and those that it keeps.

#include "framework/base/joined.h"
#include "models/trainer/program/program.h"

namespace mpigrad::trainer::program {
namespace {

// The group that was asked for; without one, the usual group, unless other samples are kept.
std::string group_of(const TrainOptions& o, const std::string& asked, const char* usual) {
  const bool other = !o.kept_data.empty() || o.kept_fraction > 0;
  return !asked.empty() ? asked : other ? "" : usual;
}

data::SourcePtr open_training(const Program& program, const TrainOptions& o) {
  const auto group = group_of(o, o.train_group, "train");
  try {
    return open(program, o.source, o.source.data, group, true);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    // The group's name was not given by the user, so the message says how to do without groups.
    if (group.empty() || !o.train_group.empty()) throw;
    fail("{}; without groups for training and {} use {} PATH or {} F to give the samples to score on", error.what(),
         program.kept.name, kept_key(program, "data"), kept_key(program, "fraction"));
  }
}

void check_keys(const Program& program, const TrainOptions& o) {
  const auto fraction = kept_key(program, "fraction"), group = kept_key(program, "group");
  const auto path = kept_key(program, "data"), table = kept_key(program, "targets");
  if (!o.kept_data.empty() && o.kept_fraction > 0) throw UsageError(fmt::format("{} and {}: one of the two", path, fraction));
  if (o.kept_fraction > 0 && !o.kept_group.empty())
    throw UsageError(fmt::format("{} is another group than the training's; {} is a part of it", group, fraction));
  if (o.split_seed != TrainOptions().split_seed && o.kept_fraction == 0)
    throw UsageError(fmt::format("data.split_seed is of {}", fraction));
  if (!o.source.targets.empty() && o.kept_data.empty() && o.kept_fraction == 0)
    throw UsageError(fmt::format("data.targets needs {} or {}, which gives the samples to score on", fraction, path));
  if (!o.kept_targets.empty() && (o.source.targets.empty() || o.kept_data.empty()))
    throw UsageError(fmt::format("{} goes with {} and data.targets", table, path));
}

}  // namespace

std::string kept_key(const Program& program, const std::string& what) {
  return fmt::format("data.{}_{}", program.kept.name, what);
}

data::SourcePtr open(const Program& program, const SampleOptions& o, const std::string& path, const std::string& part,
                     bool targets) {
  if (path.empty()) throw UsageError("--data is needed");
  auto source = program.open ? program.open(path, part, targets) : trainer::open(o, path, part, targets);
  require(source != nullptr, "[data] {} opens nothing at {}", program.name, path);
  return source;
}

void require_fitting(const Problem& p, const data::Source& source, const std::string& path, const std::string& of,
                     bool any_extents) {
  const auto& e = source.extents();
  const bool picture = e[0] == 1;
  require(picture == (p.extents[0] == 1), "[data] {} is a {}, {} is of {}", source.name_of_sample(0),
          picture ? "picture" : "volume", of, picture ? "volumes" : "pictures");
  require(source.channels() == p.channels, "[data] {} has {} channels, {} is of {}", path, source.channels(), of, p.channels);
  require(any_extents || e == p.extents, "[data] the samples of {} are {}, {} is of {}", path, e, of, p.extents);
}

void describe_data(const Program& program, const TrainOptions& o, Problem& p) {
  const auto source = open_training(program, o);
  p.extents = source->extents(), p.channels = source->channels();
  if (o.source.targets.empty() && (source->target_type().per_cell || source->target_type().shape.elements() == 0)) return;
  const auto targets = learned_targets(program, *source, o.source, p);
  if (!p.classes) return;
  const auto classes = learned(p, source, targets, all_samples(*source)).source;
  p.outputs = std::max(std::ssize(count_classes(*classes, all_samples(*classes))), std::ssize(p.class_names));
}

Sets open_sets(const Program& program, const TrainOptions& o, Problem& p) {
  check_keys(program, o);
  Sets sets{.opened = open_training(program, o)};
  const auto& whole = sets.opened;
  p.extents = whole->extents(), p.channels = whole->channels();
  const auto targets = learned_targets(program, *whole, o.source, p);
  sets.training_group = sets.kept_group = group_of(o, o.train_group, "train");
  data::Split split{.train = all_samples(*whole), .test = {}};
  if (o.kept_fraction > 0) {
    if (whole->size() < 2)
      throw UsageError(
          fmt::format("[data] {} holds one sample; training and {} need one each", o.source.data, program.kept.name));
    split = data::split_train_test(whole->size(), o.kept_fraction, program.kept.by_seed ? o.seed : o.split_seed);
    sets.all = whole->size();
  }
  // Standardised first, because the means must be known for the other sets.
  if (program.standardise && !p.classes) standardise(p, targets.rows, split.train);
  Learned training = learned(p, whole, targets, std::move(split.train)), kept;
  if (sets.all > 0) {
    kept = learned(p, whole, targets, std::move(split.test));
  } else {
    sets.kept_group = group_of(o, o.kept_group, "val");
    const auto& path = o.kept_data.empty() ? o.source.data : o.kept_data;
    const auto other = open(program, o.source, path, sets.kept_group, true);
    require_fitting(p, *other, path, "the training", false);
    auto options = o.source;
    if (!o.kept_targets.empty()) options.targets = o.kept_targets;
    kept = learned(p, other, targets_like(p, *other, options), all_samples(*other));
  }
  sets.training = std::move(training.source), sets.training_samples = std::move(training.samples);
  sets.kept = std::move(kept.source), sets.kept_samples = std::move(kept.samples);
  if (!p.classes) return sets;
  const auto classes = std::ssize(count_classes(*sets.training, sets.training_samples));
  const auto kept_classes = std::ssize(count_classes(*sets.kept, sets.kept_samples));
  p.outputs = std::max(classes, std::ssize(p.class_names));
  require(p.outputs >= 2 && kept_classes <= p.outputs, "[data] {} classes for training and {} for {}", p.outputs, kept_classes,
          program.kept.name);
  return sets;
}

}  // namespace mpigrad::trainer::program
