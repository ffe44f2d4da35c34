// The command `train`.

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/base/joined.h"
#include "models/trainer/data_check.h"
#include "models/trainer/program/program.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/supervised.h"

namespace mpigrad::trainer::program {
namespace {

// Which samples are for what.
struct Sets {
  data::SourcePtr source{}, validation_source{};  // the same where a part of the samples is kept
  std::vector<std::int64_t> training{}, validation{};
  std::string groups{};
  bool divided = false;
};

// A group that was asked for; unless other samples are for the validation the usual one.
std::string group_of(const TrainOptions& o, const char* key, const std::string& group) {
  const bool other = !o.validation_data.empty() || o.validation_fraction > 0;
  return other && !o.given.contains(key) ? "" : group;
}

data::SourcePtr open_training(const Program& program, const TrainOptions& o) {
  const auto group = group_of(o, "data.train_group", o.train_group);
  try {
    return open(program, o.source, o.source.data, group, true);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    if (group.empty() || o.given.contains("data.train_group")) throw;
    fail("{}; for data without groups data.validation_fraction or data.validation_data says what is scored on", error.what());
  }
}

Sets open_sets(const Program& program, const TrainOptions& o) {
  Sets sets{.source = open_training(program, o)};
  const auto group = group_of(o, "data.validation_group", o.validation_group);
  sets.groups = fmt::format("{} and {}", group_of(o, "data.train_group", o.train_group), group);
  if (o.validation_fraction > 0) {
    if (sets.source->size() < 2)
      throw UsageError(fmt::format("[data] {} holds one sample; training and validation need one each", o.source.data));
    auto split = data::split_train_test(sets.source->size(), o.validation_fraction, o.split_seed);
    sets.training = std::move(split.train), sets.validation = std::move(split.test);
    sets.validation_source = sets.source, sets.divided = true;
    return sets;
  }
  sets.validation_source = open(program, o.source, o.validation_data.empty() ? o.source.data : o.validation_data, group, true);
  sets.training = all_samples(*sets.source), sets.validation = all_samples(*sets.validation_source);
  return sets;
}

Notes notes_of(const Program& program, const TrainOptions& o, const Sets& sets, const Problem& problem) {
  return {{"program", program.name},
          {"optimizer", o.optimizer},
          {"groups", sets.groups},
          {"samples", fmt::format("{} and {}", sets.training.size(), sets.validation.size())},
          {problem_note, to_note(problem)},
          {split_notes.samples, std::to_string(sets.divided ? sets.source->size() : 0)},
          {split_notes.fraction, sets.divided ? fmt::format("{}", o.validation_fraction) : "none"},
          {split_notes.seed, sets.divided ? std::to_string(o.split_seed) : "none"},
          {split_notes.kept, fingerprint(*sets.validation_source, sets.validation)},
          {"seed", std::to_string(o.seed)},
          {"batch", std::to_string(o.batch)},
          {"precision", precision_of(o)}};
}

}  // namespace

int describe(const Communicator& world, const Program& program, const TrainOptions& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const auto grid = parse_grid(o.grid, 1, Channels::split);
    Problem problem{.values = o.values};
    if (!o.data.empty()) describe_samples(problem, *open_training(program, o));
    const auto size = o.size != 0 ? o.size : 128;
    if (o.size != 0 || o.data.empty()) problem.extents = {size, size, size};
    const auto& e = problem.extents;
    const auto net = program.network(problem);
    trainer::print(trainer::describe(o, *net, {described_batch(o, grid), e[0], e[1], e[2], problem.channels}, grid), o,
                   {{"program", program.name}});
  });
  return 0;
}

int train(const Communicator& world, const Program& program, const TrainOptions& o) {
  const auto extents = parse_grid(o.grid, world.size(), Channels::split);
  check_grid(extents, world.size());
  const auto own = files_of(program);
  const auto files = training_files(o, {own.front(), own.back()});
  const Outputs out(world, o.out, protected_files(o, files), replaces(o));

  const auto grid = grid_of_ranks(world, o, extents);
  Sets sets;
  Problem problem{.values = o.values};
  std::optional<data::Loader> train_set, validation_set;
  std::unique_ptr<nn::Module> net;
  trainer::together(world, [&] {
    sets = open_sets(program, o);
    describe_samples(problem, *sets.source);
    require_fitting(problem, *sets.validation_source, true, "the training");
    require_batch(o, static_cast<std::int64_t>(sets.training.size()));
    const data::LoaderOptions common{.grid = grid, .batch = o.batch / o.accumulate, .seed = o.seed, .dtype = dtype_of(o)};
    auto options = common;
    options.shuffle = true, options.flips = o.flips, options.drop_last = true, options.samples = sets.training;
    set_reading(options, *sets.source, o);
    train_set.emplace(sets.source, options);
    options = common, options.samples = sets.validation;
    validation_set.emplace(sets.validation_source, options);
    net = program.network(problem);
    trainer::build(*net, train_set->layout(), train_set->shape(), o);
  });
  require_same_data(world, *sets.source);
  if (sets.validation_source != sets.source) require_same_data(world, *sets.validation_source);
  const data::ContentsOptions reading{.dtype = dtype_of(o)};
  auto contents = read_data(world, *sets.source, sets.training, reading);
  const auto kept = read_data(world, *sets.validation_source, sets.validation, reading);
  auto notes = notes_of(program, o, sets, problem);
  add_contents(notes, o.source.data, contents, &kept);
  contents += kept;
  const auto geometry = geometry_of(world, *sets.source, sets.training);
  notes[geometry_note] = to_note(geometry);
  const auto names = value_names(program);
  Predictions predictions;
  std::vector<double> values;
  return trainer::train(
      world, o, extents, out,
      {.program = program.name,
       .net = *net,
       .loader = *train_set,
       .loss = program.loss,
       .notes = notes,
       .decisive = {"program", "optimizer", "groups", problem_note, split_notes.fraction, split_notes.seed},
       .headline = fmt::format("{} volumes of {} x {} for training, {} for validation; {} {}; {}", sets.training.size(),
                               problem.extents, problem.channels, sets.validation.size(), problem.outputs,
                               problem.classes ? "classes" : "numbers to predict", contents.remark() + geometry.remark()),
       .values = names,
       .evaluate =
           [&] {
             predictions = predict(*net, *validation_set);
             return values = values_of(program, *sets.validation_source, predictions);
           },
       .evaluated_samples = static_cast<std::int64_t>(sets.validation.size()),
       .text =
           [&](const std::vector<double>& measured) {
             auto text = fmt::format("validation {:.4f}", measured[0]);
             for (std::size_t i = 1; i < names.size(); ++i) text += fmt::format(", {} {:.4g}", names[i], measured[i]);
             return text;
           },
       .report =
           [&](nlohmann::ordered_json run, const TrainerResult& result, const std::string& text) {
             Results results{.problem = problem, .predictions = predictions, .source = *sets.validation_source};
             results.scored = true, results.epochs = result.epochs;
             for (std::size_t i = 0; i < names.size(); ++i) results.values[names[i]] = values[i];
             run.update({{"training_samples", sets.training.size()}, {"validation_samples", sets.validation.size()}});
             report(program, o, out, results, std::move(run), files, text);
           }});
}

}  // namespace mpigrad::trainer::program
