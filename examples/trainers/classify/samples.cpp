// Which samples are for what, and which class or targets each has.

#include <algorithm>

#include "examples/trainers/classify/classify.h"
#include "framework/base/joined.h"
#include "models/data/data.h"

namespace mpigrad::classify {
namespace {

// The group that was asked for; without a choice of samples for validation the usual one.
std::string group_of(const TrainOptions& o, const char* option, const std::string& group) {
  const bool divided = !o.validation_data.empty() || o.validation_fraction > 0;
  return divided && !o.given.contains(option) ? "" : group;
}

// The classes of all samples of data beside those of a network: where both have names for them, these decide.
std::vector<std::int64_t> classes_like(const data::Source& source, const trainer::SampleOptions& o, const Recipe& recipe,
                                       const std::string& label) {
  auto labels = trainer::labels_of(source, label, "a classifier");
  const auto names = trainer::class_names(source, o);
  if (names.empty() || recipe.class_names.empty()) return labels;
  std::vector<std::int64_t> class_of;
  for (const auto& name : names) {
    const auto found = std::find(recipe.class_names.begin(), recipe.class_names.end(), name);
    require(found != recipe.class_names.end(), "[data] {}: the class '{}' is none of {}", source.name_of_sample(0), name,
            joined(recipe.class_names, ", "));
    class_of.push_back(found - recipe.class_names.begin());
  }
  for (auto& each : labels) each = class_of[static_cast<std::size_t>(each)];
  return labels;
}

std::vector<std::int64_t> picked(const std::vector<std::int64_t>& all, const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> result;
  for (const auto sample : samples) result.push_back(all[static_cast<std::size_t>(sample)]);
  return result;
}

trainer::TargetRows picked(const trainer::TargetRows& all, const std::vector<std::int64_t>& samples) {
  const auto width = static_cast<std::ptrdiff_t>(all.names.size());
  trainer::TargetRows result{.names = all.names};
  for (const auto sample : samples) {
    const auto row = all.values.begin() + static_cast<std::ptrdiff_t>(sample) * width;
    result.values.insert(result.values.end(), row, row + width);
  }
  return result;
}

// All targets, or the one called --label.
trainer::TargetRows wanted_rows(const data::Source& source, const trainer::SampleOptions& o) {
  auto rows = trainer::target_rows(source, o);
  if (o.label.empty() || rows.names.empty()) return rows;
  const auto found = std::find(rows.names.begin(), rows.names.end(), o.label);
  require(found != rows.names.end(), "[data] there is no target '{}', but {}", o.label, joined(rows.names, ", "));
  const auto place = static_cast<std::size_t>(found - rows.names.begin());
  trainer::TargetRows one{.names = {o.label}};
  for (auto i = place; i < rows.values.size(); i += rows.names.size()) one.values.push_back(rows.values[i]);
  return one;
}

// The options of the validation data, which may have a table of targets of their own.
trainer::SampleOptions validation_options(const TrainOptions& o) {
  auto options = o.source;
  if (!o.validation_targets.empty()) options.targets = o.validation_targets;
  return options;
}

void require_fitting(const data::Source& source, const Recipe& recipe, const std::string& of) {
  const bool picture = source.extents()[0] == 1;
  require(picture == (recipe.extents[0] == 1), "[data] {} is a {}, {} is of {}", source.name_of_sample(0),
          picture ? "picture" : "volume", of, picture ? "volumes" : "pictures");
  require(source.channels() == recipe.channels, "[data] {} has {} channels, {} {}", source.name_of_sample(0), source.channels(),
          of, recipe.channels);
}

}  // namespace

data::SourcePtr open_training(const TrainOptions& o) {
  const auto group = group_of(o, "--train-group", o.train_group);
  try {
    return trainer::open(o.source, o.source.data, group);
  } catch (const trainer::UsageError&) {
    throw;
  } catch (const Error& error) {
    // Nobody asked for the group by its name.
    if (group.empty() || o.given.contains("--train-group")) throw;
    fail(
        "{}; without groups for training and validation --validation-data PATH or --validation-fraction F says what is scored on",
        error.what());
  }
}

Sets open_sets(const TrainOptions& o, Recipe& recipe) {
  if (!o.validation_data.empty() && o.validation_fraction > 0)
    throw trainer::UsageError("--validation-data and --validation-fraction: one of the two");
  if (o.validation_fraction > 0 && o.given.contains("--validation-group"))
    throw trainer::UsageError("--validation-group is another group than the training's; --validation-fraction is a part of it");
  if (!o.source.targets.empty() && o.validation_data.empty() && o.validation_fraction == 0)
    throw trainer::UsageError("--targets needs --validation-fraction or --validation-data, which says what is scored on");
  if (!o.validation_targets.empty() && (o.source.targets.empty() || o.validation_data.empty()))
    throw trainer::UsageError("--validation-targets is of --validation-data, beside --targets");
  const auto whole = open_training(o);
  recipe.channels = whole->channels(), recipe.extents = {whole->extents().begin(), whole->extents().end()};
  const auto rows = wanted_rows(*whole, o.source);
  const bool regression = !rows.names.empty();
  require(regression || trainer::has_labels(*whole),
          "[data] classify needs labels, or numbers to predict, and the samples of {} have neither; --labels NAME=FILE gives "
          "labels, --targets TABLE.csv numbers",
          whole->name_of_sample(0));
  std::vector<std::int64_t> labels;
  if (!regression) {
    recipe.label = whole->target_names()[trainer::label_index(*whole, o.source.label)];
    labels = trainer::labels_of(*whole, o.source.label, "a classifier");
    recipe.class_names = trainer::class_names(*whole, o.source);
  }
  // The first one settles the means and deviations.
  const auto with_targets = [&](const data::SourcePtr& source, const std::vector<std::int64_t>& samples,
                                const trainer::TargetRows& of) {
    const auto those = picked(of, samples);
    if (!recipe.regression()) describe_targets(recipe, those);
    return trainer::chosen(source, samples, standardised(those, recipe));
  };
  Sets sets;
  if (o.validation_fraction > 0) {
    if (whole->size() < 2)
      throw trainer::UsageError(fmt::format("[data] {} holds one sample; training and validation need one each", o.source.data));
    const auto split = data::split_train_test(whole->size(), o.validation_fraction, o.split_seed);
    if (regression) {
      sets.training = with_targets(whole, split.train, rows), sets.validation = with_targets(whole, split.test, rows);
    } else {
      sets.training = trainer::chosen(whole, split.train, recipe.label, picked(labels, split.train));
      sets.validation = trainer::chosen(whole, split.test, recipe.label, picked(labels, split.test));
    }
    sets.all = whole->size();
    sets.train_group = sets.validation_group = group_of(o, "--train-group", o.train_group);
  } else {
    const auto group = group_of(o, "--validation-group", o.validation_group);
    const auto& path = o.validation_data.empty() ? o.source.data : o.validation_data;
    const auto other = trainer::open(o.source, path, group);
    const auto all = trainer::all_samples(*whole), all_others = trainer::all_samples(*other);
    if (regression) {
      sets.training = with_targets(whole, all, rows);
      sets.validation = with_targets(other, all_others, wanted_rows(*other, validation_options(o)));
    } else {
      auto other_labels = classes_like(*other, o.source, recipe, o.source.label);
      sets.training = trainer::chosen(whole, all, recipe.label, std::move(labels));
      sets.validation = trainer::chosen(other, all_others, recipe.label, std::move(other_labels));
    }
    sets.train_group = group_of(o, "--train-group", o.train_group), sets.validation_group = group;
  }
  require(sets.training->extents() == sets.validation->extents() && sets.training->channels() == sets.validation->channels(),
          "[classify] volumes of {} are {} x {}, those of {} {} x {}", sets.training->name_of_sample(0), sets.training->extents(),
          sets.training->channels(), sets.validation->name_of_sample(0), sets.validation->extents(), sets.validation->channels());
  if (regression) return sets;
  const auto counts = count_classes(*sets.training), validation_counts = count_classes(*sets.validation);
  recipe.classes = static_cast<std::int64_t>(std::max(counts.size(), recipe.class_names.size()));
  require(recipe.classes >= 2 && static_cast<std::int64_t>(validation_counts.size()) <= recipe.classes,
          "[classify] {} classes for training and {} for validation", recipe.classes, validation_counts.size());
  return sets;
}

data::SourcePtr open_scored(const InferOptions& o, const Recipe& recipe) {
  const auto source = trainer::open(o.source);
  require_fitting(*source, recipe, o.weights);
  if (recipe.regression()) {
    const auto rows = standardised(trainer::target_rows(*source, o.source), recipe, o.source.label);
    return trainer::chosen(source, trainer::all_samples(*source), rows);
  }
  const auto& names = source->target_names();
  // The label that was trained on, where there are several and none is asked for.
  const auto label = o.source.label.empty() && names.size() > 1 ? recipe.label : o.source.label;
  return trainer::chosen(source, trainer::all_samples(*source), recipe.label, classes_like(*source, o.source, recipe, label));
}

data::SourcePtr open_unknown(const InferOptions& o, const Recipe& recipe) {
  if (o.source.data.empty()) throw trainer::UsageError("--data is needed");
  const auto source = trainer::open(o.source, o.source.data, o.source.part, false);
  require_fitting(*source, recipe, o.weights);
  return trainer::chosen(source, trainer::all_samples(*source), "", {});
}

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

}  // namespace mpigrad::classify
