// Options and commands of trainer::run().

#include <CLI/CLI.hpp>

#include <limits>

#include "comm/launch.h"
#include "models/trainer/program/program.h"

namespace mpigrad::trainer {

namespace program {
namespace {

// --NAME of each setting, whose default `values` get.
void add_settings(CLI::App& app, const Program& program, std::map<std::string, Value>& values) {
  for (const auto& setting : program.settings) {
    const auto option = "--" + setting.name;
    require(!values.contains(setting.name) && app.get_option_no_throw(option) == nullptr,
            "[trainer] the setting '{}' has the name of another option", setting.name);
    auto& value = values[setting.name] = setting.value;
    const auto add = [&](auto& x) { return app.add_option(option, x, setting.help)->capture_default_str()->group("Network"); };
    if (auto* flag = std::get_if<bool>(&value)) app.add_flag(option, *flag, setting.help)->group("Network");
    else if (auto* whole = std::get_if<std::int64_t>(&value))
      add(*whole)->check(tool::whole_number(std::numeric_limits<std::int64_t>::min()));
    else if (auto* number = std::get_if<double>(&value)) add(*number)->check(tool::any_number());
    else add(std::get<std::string>(value));
  }
}

// `part`: what the option for a part of the data is called, "" for none.
void add_source_options(CLI::App& app, const Program& program, SampleOptions& o, const std::string& part) {
  if (!program.open) {
    add_sample_options(app, o, part);
    return add_worker_option(app, o);
  }
  app.add_option("--data", o.data, "samples")->group("Data");
  if (!part.empty()) app.add_option(part, o.part, "part of the data")->group("Data");
}

void add_options(CLI::App& app, const Program& program, TrainOptions& o) {
  o.out = program.name + "-out";
  o.epochs = program.epochs, o.batch = program.batch, o.learning_rate = program.learning_rate;
  add_source_options(app, program, o.source, "");
  app.add_option("--train-group", o.train_group, "group of the data to train on")->capture_default_str()->group("Data");
  app.add_option("--validation-group", o.validation_group, "group to score on")->capture_default_str()->group("Data");
  app.add_option("--validation-data", o.validation_data, "data to score on, instead of a group")->group("Data");
  app.add_option("--validation-fraction", o.validation_fraction,
                 "of the samples, drawn at random, that are kept to score on, instead of a group")
      ->check(tool::number_between(0.001, 0.999))
      ->group("Data");
  app.add_option("--split-seed", o.split_seed, "of the draw of --validation-fraction")
      ->check(tool::whole_number(0))
      ->capture_default_str()
      ->group("Data");
  add_data_options(app, o);
  add_store_option(app, o);
  add_grid_option(app, o);
  add_communication_option(app, o);
  add_layer_grid_option(app, o);
  add_sharded_weights_option(app, o);
  add_device_options(app, o);
  add_training_options(app, o);
  add_stop_options(app, o);
  add_profile_option(app, o);
  add_mllog_option(app, o);
  add_average_option(app, o);
  add_noise_option(app, o);
  add_file_options(app, o);
  add_describe_options(app, o);
  add_settings(app, program, o.values);
}

void add_options(CLI::App& app, const Program& program, InferOptions& o, bool scored) {
  o.out = program.name + (scored ? "-scores" : "-predictions");
  o.batch = program.batch;
  add_source_options(app, program, o.source, "--group");
  if (!scored && !program.open)
    for (const auto* name : {"--labels", "--label-dataset"}) app.remove_option(app.get_option(name));
  add_infer_options(app, o, scored, "validation");
}

void check_sets(const TrainOptions& o) {
  if (!o.validation_data.empty() && o.validation_fraction > 0)
    throw UsageError("--validation-data and --validation-fraction: one of the two");
  if (o.validation_fraction > 0 && o.given.contains("--validation-group"))
    throw UsageError("--validation-group is another group than the training's; --validation-fraction is a part of it");
  if (o.given.contains("--split-seed") && o.validation_fraction == 0)
    throw UsageError("--split-seed is of --validation-fraction");
}

int run_on(const std::shared_ptr<Transport>& transport, int argc, char** argv, const Program& program) {
  require(!program.name.empty() && program.network && program.loss, "[trainer] a program has a name, a network and a loss");
  CLI::App app(program.help.empty() ? "Trains a network, scores it and predicts with it." : program.help, program.name);
  app.require_subcommand(1);
  TrainOptions train_options;
  auto* train_command = app.add_subcommand("train", "train on samples with targets");
  add_options(*train_command, program, train_options);
  InferOptions evaluate_options, predict_options;
  auto* evaluate_command = app.add_subcommand("evaluate", "score weights on samples with known targets");
  add_options(*evaluate_command, program, evaluate_options, true);
  add_options(*app.add_subcommand("predict", "predict targets of samples without them"), program, predict_options, false);
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  for (auto* options : std::initializer_list<trainer::Options*>{&train_options, &evaluate_options, &predict_options})
    options->given = tool::given_options(app);
  train_options.data = train_options.source.data;
  for (auto* options : {&evaluate_options, &predict_options}) options->data = options->source.data;
  return tool::finish(app, *transport, [&] {
    const auto prepare = [](const auto& o) {
      check(o);
      apply_precision(o);
      apply_device_options(o);
    };
    const Communicator world(transport);
    if (*train_command) {
      const auto& o = train_options;
      prepare(o);
      check_sets(o);
      std::set<std::string> own{"--train-group", "--validation-data", "--validation-fraction",
                                "--volume",      "--stored",          "--channels"};
      for (const auto& setting : program.settings) own.insert("--" + setting.name);
      warn(o, own, transport->rank());
      return o.describe ? program::describe(world, program, o) : program::train(world, program, o);
    }
    const auto& o = *evaluate_command ? evaluate_options : predict_options;
    prepare(o);
    return program::infer(world, program, o);
  });
}

}  // namespace
}  // namespace program

int run(int argc, char** argv, const Program& program) {
  return launch(argc, argv,
                [&](const std::shared_ptr<Transport>& transport) { return program::run_on(transport, argc, argv, program); });
}

}  // namespace mpigrad::trainer
