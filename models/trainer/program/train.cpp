// The command `train`.

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/base/joined.h"
#include "models/trainer/data_check.h"
#include "models/trainer/program/program.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/run_training.h"

namespace mpigrad::trainer::program {
namespace {

// Notes about the samples: groups or split say which are kept; counts and names detect whether they are still the same.
Notes notes_of(const Program& program, const TrainOptions& o, const Sets& sets, const Problem& problem) {
  const auto names = split_notes(program);
  const bool divided = sets.all > 0, by_seed = program.kept.by_seed;
  Notes notes{{"program", program.name},
              {"optimizer", o.optimizer},
              {"groups", fmt::format("{} and {}", sets.training_group, sets.kept_group)},
              {"samples", fmt::format("{} and {}", sets.training_samples.size(), sets.kept_samples.size())},
              {problem_note, to_note(problem)},
              {"seed", std::to_string(o.seed)},
              {"batch", std::to_string(o.batch)},
              {"precision", precision_of(o)}};
  notes[names.samples] = std::to_string(sets.all);
  notes[names.fraction] = divided ? fmt::format("{}", o.kept_fraction) : "none";
  notes[names.seed] = by_seed ? std::to_string(o.seed) : divided ? std::to_string(o.split_seed) : "none";
  notes[names.kept] = fingerprint(*sets.kept, sets.kept_samples);
  return notes;
}

}  // namespace

int describe(const Communicator& world, const Program& program, const TrainOptions& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const auto grid = parse_grid(o.grid, 1, Channels::split);
    auto problem = problem_of(program, o);
    problem.channels = program.described.channels, problem.outputs = program.described.outputs;
    problem.classes = program.described.classes;
    if (!o.data.empty()) describe_data(program, o, problem);
    const auto size = o.size != 0 ? o.size : 128;
    if (o.size != 0 || o.data.empty()) problem.extents = {size, size, size};
    const auto& e = problem.extents;
    const auto net = program.network(problem);
    nlohmann::ordered_json about{{"program", program.name}};
    for (const auto& [name, value] : problem.values) about[name] = to_json(value);
    trainer::print(trainer::describe(o, *net, {described_batch(o, grid), e[0], e[1], e[2], problem.channels}, grid), o, about);
  });
  return 0;
}

int train(const Communicator& world, const Program& program, const TrainOptions& o) {
  const auto extents = parse_grid(o.grid, world.size(), Channels::split);
  check_grid(extents, world.size());
  const auto files = training_files(o, {predictions_file, picture_file(program)});
  const Outputs out(world, o.out, protected_files(o, files), replaces(o));

  const auto grid = grid_of_ranks(world, o, extents);
  Sets sets;
  Findings f;
  f.problem = problem_of(program, o), f.scored = f.is_of_training = true;
  auto& problem = f.problem;
  std::optional<data::Loader> train_set, kept_set;
  std::unique_ptr<nn::Module> net;
  const data::LoaderOptions common{
      .grid = grid, .batch = o.batch / o.training.fit.accumulate, .seed = o.seed, .dtype = dtype_of(o)};
  of_input(world, [&] {
    sets = open_sets(program, o, problem);
    require_batch(o, std::ssize(sets.training_samples));
    auto options = common;
    options.shuffle = true, options.flips = o.flips, options.drop_last = true, options.samples = sets.training_samples;
    set_reading(options, *sets.training, o);
    train_set.emplace(sets.training, options);
    options = common, options.samples = sets.kept_samples;
    kept_set.emplace(sets.kept, options);
    net = program.network(problem);
    trainer::build(*net, train_set->layout(), train_set->shape(), o);
  });
  f.source = sets.kept;
  const auto &training = sets.training_samples, &kept = sets.kept_samples;
  require_same_data(world, *sets.training);
  if (sets.kept != sets.training) require_same_data(world, *sets.kept);
  const data::ContentsOptions reading{.dtype = dtype_of(o)};
  auto contents = read_data(world, *sets.training, training, reading);
  const auto kept_contents = read_data(world, *sets.kept, kept, reading);
  auto notes = notes_of(program, o, sets, problem);
  add_contents(notes, o.source.data, contents, &kept_contents);
  contents += kept_contents;
  const bool starts = o.weights.empty() && (o.resume.empty() || o.resume == newest_in_out);
  if (program.prepare && starts) {
    auto options = common;
    options.samples = training;
    program.prepare(*net, data::Loader(sets.training, options), problem);
  }
  const auto geometry = geometry_of(world, *sets.training, training);
  notes[geometry_note] = to_note(geometry);
  Notes more_notes;
  if (problem.classes) {
    f.majority = majority_of(count_classes(*sets.kept, kept));
  } else {
    f.means = means_of(world, problem, *sets.training, training);
    more_notes[means_note] = to_note(*f.means);
    if (const auto& reference = program.reference) {
      more_notes[reference->note] = reference->fit(world, *sets.training, training);
      f.reference = reference->predict(world, *sets.kept, kept, more_notes[reference->note], "the training");
      restore_units(problem, f.reference.values);
    }
  }
  const auto names = value_names(program, problem);
  const auto accuracy = place_of(names, "accuracy");  // of classes
  const auto split = split_notes(program);
  return run_training(
      world, o, extents, out,
      {.program = program.name,
       .net = *net,
       .loader = *train_set,
       .hooks = {.loss = loss_of(program, problem),
                 .evaluate =
                     [&] {
                       f.predictions = predict(*net, *kept_set);
                       return f.values = values_of(program, problem, *sets.kept, f.predictions);
                     },
                 .text = [&](const EpochRow& row) { return text_of(program, names, row.values); },
                 .after_epoch = program.hooks.after_epoch},
       .notes = notes,
       .decisive = {"program", "optimizer", "groups", problem_note, split.fraction, split.seed},
       .more_notes = more_notes,
       .headline = fmt::format("{} volumes of {} x {} for training, {} for the {}, {}; {}", training.size(), problem.extents,
                               problem.channels, kept.size(), program.kept.name,
                               problem.classes ? fmt::format("{} classes; always the most frequent one is right in {:.1f} %",
                                                             problem.outputs, 100 * f.majority)
                                               : "targets " + joined(problem.targets, ", "),
                               contents.remark() + geometry.remark()),
       .values = names,
       .explained =
           [&] {
             return std::vector<Explained>{{"samples",
                                            {fmt::format("{} threads prepare samples; {} of the {}: {}", o.source.workers,
                                                         kept.size(), program.kept.name, joined(kept, " "))}}};
           },
       .evaluated_samples = std::ssize(kept),
       .accuracy = problem.classes ? std::function([accuracy](const std::vector<double>& values) { return values[accuracy]; })
                                   : std::function<double(const std::vector<double>&)>(),
       .report =
           [&](nlohmann::ordered_json run, const TrainerResult& result, const std::string& text) {
             f.epochs = result.epochs;
             run["training_samples"] = training.size();
             report(program, o, out, f, std::move(run), files, text);
           }});
}

}  // namespace mpigrad::trainer::program
