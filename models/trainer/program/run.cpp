// Keys and commands of trainer::run().

#include "comm/launch.h"
#include "models/trainer/program/program.h"
#include "models/trainer/program/setting_keys.h"
#include "models/trainer/recipe/commands.h"

namespace mpigrad::trainer {

namespace program {
namespace {

// `part`: the name of the key for a part of the data, "" for none.
void add_source_keys(Keys& keys, const Program& program, SampleOptions& o, const std::string& part) {
  if (!program.open) {
    add_sample_keys(keys, o, part);
    return add_worker_key(keys, o);
  }
  keys.add("data.path", o.data, "the samples").with_flag("--data");
  if (!part.empty()) keys.add("data." + part, o.part, "part of the data").instead_of("--" + part);
}

// data.label and data.targets, for samples with targets.
void add_target_keys(Keys& keys, const Program& program, SampleOptions& o) {
  add_label_key(keys, o);
  if (program.targets != TargetKind::classes) add_target_key(keys, o);
}

void add_kept_keys(Keys& keys, const Program& program, TrainOptions& o) {
  const auto add = [&](const char* what, auto& field, Rule rule, const std::string& help) -> Key& {
    return keys.add(kept_key(program, what), field, std::move(rule), help)
        .instead_of(fmt::format("--{}-{}", program.kept.name, what));
  };
  keys.add("data.train_group", o.train_group, "group (of HDF5, .npz, CIFAR) to train on")
      .with_default("train; all, where the samples kept are no group")
      .instead_of("--train-group");
  add("group", o.kept_group, {}, "group to score on").with_default("val");
  add("data", o.kept_data, {}, "data to score on, instead of a group");
  if (program.targets != TargetKind::classes)
    add("targets", o.kept_targets, {}, fmt::format("table of the numbers of {}", kept_key(program, "data")))
        .with_default("that of data.targets");
  auto& fraction = add("fraction", o.kept_fraction, between(0.001, 0.999),
                       "part of the samples, drawn at random, that is kept to score on, instead of a group");
  if (o.kept_fraction == 0) fraction.with_default("none");
  if (!program.kept.by_seed)
    keys.add("data.split_seed", o.split_seed, whole(0), fmt::format("seed of the draw of {}", kept_key(program, "fraction")))
        .instead_of("--split-seed");
}

void add_keys(Keys& keys, const Program& program, TrainOptions& o) {
  o.keys = &keys;
  add_source_keys(keys, program, o.source, "");
  add_target_keys(keys, program, o.source);
  add_kept_keys(keys, program, o);
  for (const auto& key : keys.all()) o.described.insert(key.name);
  add_trainer_keys(keys, o);
  add_setting_keys(keys, program.settings, o.values);
  for (const auto& setting : program.settings) o.described.insert(key_of(setting));
  for (const auto& name : program.without) keys.remove(name);
  for (const auto& key : keys.all()) o.defaults[key.name] = key.get();
}

void add_keys(Keys& keys, const Program& program, InferOptions& o, bool scored) {
  add_source_keys(keys, program, o.source, "group");
  if (scored) add_target_keys(keys, program, o.source), keys["data.label"].with_default("that of the training");
  else if (!program.open)
    for (const auto* name : {"data.labels", "data.label_dataset"}) keys.remove(name);
  add_infer_keys(keys, o, scored, program.kept.name);
}

void check_settings(const Program& program, const TrainOptions& o) {
  if (!program.check) return;
  std::map<std::string, std::string> set;
  for (const auto& key : o.keys->all())
    if (const auto values = key.get(); values != o.defaults.at(key.name)) set[key.name] = values.empty() ? "" : values.front();
  if (const auto problem = program.check(problem_of(program, o), set); !problem.empty()) throw UsageError(problem);
}

int run_train(const Communicator& world, const Program& program, TrainOptions& o) {
  o.data = o.source.data;
  // A default is dropped if a group or data to score on were given.
  if ((!o.kept_data.empty() || !o.kept_group.empty()) && o.kept_fraction == program.kept.fraction) o.kept_fraction = 0;
  check(o);
  check_settings(program, o);
  warn(o, o.described, world.rank());
  return o.describe ? describe(world, program, o) : train(world, program, o);
}

int run_infer(const Communicator& world, const Program& program, InferOptions& o) {
  o.data = o.source.data;
  check(o);
  return infer(world, program, o);
}

int run_on(const std::shared_ptr<Transport>& transport, int argc, char** argv, const Program& program) {
  require(!program.name.empty() && program.network && program.loss, "[trainer] a program has a name, a network and a loss");
  TrainOptions train;
  train.out = program.name + "-out";
  train.training.fit.epochs = program.epochs, train.training.fit.after_step = program.hooks.after_step;
  train.batch = program.batch, train.optimizer_options.learning_rate = program.learning_rate;
  train.kept_fraction = program.kept.fraction;
  InferOptions evaluate, predict;
  evaluate.out = program.name + "-scores", predict.out = program.name + "-predictions";
  evaluate.batch = predict.batch = program.batch;
  const auto infer_command = [&](const char* name, const char* help, InferOptions& o, bool scored) {
    return Command{.name = name,
                   .help = help,
                   .options = o,
                   .keys = [&program, &o, scored](Keys& keys) { add_keys(keys, program, o, scored); },
                   .flags = [&o](CLI::App& app) { add_run_flags(app, o); },
                   .run = [&program, &o](const Communicator& world) { return run_infer(world, program, o); },
                   .all_flags = true};
  };
  return run_commands(transport, argc, argv, program.name,
                      program.help.empty() ? "Trains a network, scores it and predicts with it." : program.help,
                      {{.name = "train",
                        .help = "train on samples with targets",
                        .options = train,
                        .keys = [&](Keys& keys) { add_keys(keys, program, train); },
                        .flags =
                            [&](CLI::App& app) {
                              add_training_flags(app, train);
                              add_size_flag(app, train);
                            },
                        .run = [&](const Communicator& world) { return run_train(world, program, train); }},
                       infer_command("evaluate", "score weights on samples with known targets", evaluate, true),
                       infer_command("predict", "predict targets of samples without them", predict, false)});
}

}  // namespace
}  // namespace program

int run(int argc, char** argv, const Program& program) {
  return launch(argc, argv,
                [&](const std::shared_ptr<Transport>& transport) { return program::run_on(transport, argc, argv, program); });
}

}  // namespace mpigrad::trainer
