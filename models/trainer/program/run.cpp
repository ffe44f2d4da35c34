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

void add_keys(Keys& keys, const Program& program, TrainOptions& o) {
  o.keys = &keys;
  add_source_keys(keys, program, o.source, "");
  keys.add("data.train_group", o.train_group, "group of the data to train on").instead_of("--train-group");
  keys.add("data.validation_group", o.validation_group, "group to score on").instead_of("--validation-group");
  keys.add("data.validation_data", o.validation_data, "data to score on, instead of a group").instead_of("--validation-data");
  keys.add("data.validation_fraction", o.validation_fraction, between(0.001, 0.999),
           "part of the samples, drawn at random, that is kept to score on, instead of a group")
      .with_default("none")
      .instead_of("--validation-fraction");
  keys.add("data.split_seed", o.split_seed, whole(0), "seed of the draw of data.validation_fraction").instead_of("--split-seed");
  add_trainer_keys(keys, o);
  add_setting_keys(keys, program.settings, o.values);
}

void add_keys(Keys& keys, const Program& program, InferOptions& o, bool scored) {
  add_source_keys(keys, program, o.source, "group");
  if (!scored && !program.open)
    for (const auto* name : {"data.labels", "data.label_dataset"}) keys.remove(name);
  add_infer_keys(keys, o, scored, "validation");
}

void check_sets(const TrainOptions& o) {
  if (!o.validation_data.empty() && o.validation_fraction > 0)
    throw UsageError("data.validation_data and data.validation_fraction: one of the two");
  if (o.validation_fraction > 0 && o.given.contains("data.validation_group"))
    throw UsageError("data.validation_group is another group than the training's; data.validation_fraction is a part of it");
  if (o.given.contains("data.split_seed") && o.validation_fraction == 0)
    throw UsageError("data.split_seed is of data.validation_fraction");
}

int run_train(const Communicator& world, const Program& program, TrainOptions& o) {
  o.data = o.source.data;
  check(o);
  check_sets(o);
  std::set<std::string> described;  // by --describe
  for (const auto& key : o.keys->all())
    if (key.section() == "network" || key.section() == "data") described.insert(key.name);
  warn(o, described, world.rank());
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
  train.epochs = program.epochs, train.batch = program.batch, train.learning_rate = program.learning_rate;
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
