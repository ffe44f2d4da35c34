#include "models/trainer/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>

#include "framework/base/joined.h"

namespace mpigrad::trainer {
namespace {

// Steps are counted in 64 bits: epochs times steps per epoch, of which there are fewer than samples.
constexpr int most_epochs = 1000000000, most_batch = 1000000000;

}  // namespace

void add_data_options(CLI::App& app, Options& o) {
  app.add_flag("--flips", o.flips, "flip each spatial axis with probability 1/2")->group("Data");
  app.add_option("--dtype", o.dtype, "of parameters and activations: float32 or float64")
      ->check(CLI::IsMember({"float32", "float64"}))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--precision", o.precision,
                 "in which layers compute beside float32 parameters: float32, tf32 (float32 whose products may be rounded to 10 "
                 "bits on a GPU; on a CPU float32), bfloat16, or float16 with loss scaling (default: that of --dtype)")
      ->check(CLI::IsMember({"float32", "tf32", "bfloat16", "float16"}))
      ->group("Data");
}

void add_store_option(CLI::App& app, Options& o) {
  app.add_option(
         "--store", o.store,
         "GiB of each rank's memory for samples: the ranks read every sample once, keep it together, in blocks, and send "
         "each other what the shuffled, flipped and shifted batches of later epochs need (default: none, samples are read "
         "again where all of them are more than 1 GiB per node)")
      ->check(CLI::NonNegativeNumber)
      ->group("Data");
  app.add_option(
         "--read", o.read,
         "of the training's samples: independent, each rank its block; collective, some of the ranks that share a sample read "
         "pieces of whole planes, 4 MiB or more each, and send the others their blocks: where many ranks share a file system. "
         "Collective reading keeps nothing without --store")
      ->check(CLI::IsMember({"independent", "collective"}))
      ->capture_default_str()
      ->group("Data");
  app.add_option(
         "--ghosts", o.ghosts,
         "planes around each rank's block that are read, too, so that the first layer asks no other rank for what it needs of "
         "them: half its kernel, and what a pooling behind it adds")
      ->check(tool::whole_number(0, 1000))
      ->capture_default_str()
      ->group("Data");
}

void add_grid_option(CLI::App& app, Options& o) {
  app.add_option("--grid", o.grid,
                 "ranks along sample, depth, height, width and, of cosmoflow, classify and unet3d, filter and channel, such as "
                 "sample=2,depth=2; an axis left out is 1 (default: all ranks along sample). With filter each rank makes, with "
                 "channel it takes, some of every layer's channels, and holds that part of its weights; with both it does both")
      ->group("Ranks");
}

void add_layer_grid_option(CLI::App& app, Options& o) {
  app.add_option(
         "--grid-of", o.grid_of,
         "layers that have a grid of their own, such as conv5-7:sample=4 or linear1:filter=4, of as many ranks as --grid; "
         "may be given several times. Volumes are redistributed between layers of different grids")
      ->group("Ranks");
}

void add_sharded_weights_option(CLI::App& app, Options& o) {
  app.add_flag("--sharded-weights", o.sharded_weights,
               "each rank keeps a part of every weight, of its gradient and of the optimizer's state; weights are gathered where "
               "they are used, gradients reduced and scattered")
      ->group("Ranks");
}

void add_communication_option(CLI::App& app, Options& o) {
  app.add_option("--communication", o.communication,
                 "overlapped: convolutions go on while halos travel, where that pays; blocking: they wait for them; none: ranks "
                 "exchange nothing, which shows what exchanging costs, and what is trained is worthless and not written")
      ->check(CLI::IsMember({"overlapped", "blocking", "none"}))
      ->capture_default_str()
      ->group("Ranks");
}

void add_device_options(CLI::App& app, Options& o) {
  o.device = name_of(current_device());
  app.add_option("--device", o.device, "cpu, or cuda: the ranks of a node take its GPUs in turn; also MPIGRAD_DEVICE")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str()
      ->group("Device");
  app.add_flag("--autotune", o.autotune,
               "time the kernels that a GPU has for a convolution at its first call, for 2 s each at most; take the fastest, and "
               "keep what was "
               "found for later runs (MPIGRAD_TUNING_FILE)")
      ->group("Device");
  app.add_flag(
         "--graph", o.graph,
         "on a GPU capture a training step once and repeat it as one piece of work; not with --accumulate or float16; so far "
         "run on emulated GPUs only")
      ->group("Device");
  app.add_flag("--deterministic", o.deterministic,
               "the same bits in every run on as many ranks and threads of such machines: sums over ranks in the order of ranks "
               "(a step "
               "on two ranks took 1.1 to 1.4 times as long, on one rank as long as ever), and on a GPU only kernels that repeat "
               "their bits")
      ->group("Device");
}

void add_norm_options(CLI::App& app, Options& o) {
  app.add_option(
         "--statistics", o.statistics,
         "ranks that share batch statistics: all, spatial (those of the same samples), batch (the same part of all) or local")
      ->check(CLI::IsMember({"all", "spatial", "batch", "local"}))
      ->capture_default_str()
      ->group("Network");
  app.add_option("--norm-momentum", o.norm_momentum,
                 "of the running statistics of batch norm; 0.999 for more than about 5,000 steps")
      ->check(tool::number_between(0, 0.99999))
      ->capture_default_str()
      ->group("Network");
  app.add_option("--keep", o.keep, "probability with which dropout keeps a feature (default: the network's own)")
      ->check(tool::number_between(1e-3, 1))
      ->group("Network");
}

void add_training_options(CLI::App& app, Options& o) {
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str()->group("Training");
  };
  add("--epochs", o.epochs, "passes over the training set")->check(tool::whole_number(0, most_epochs));
  add("--batch", o.batch, "samples per step, of all ranks together")->check(tool::whole_number(1, most_batch));
  add("--accumulate", o.accumulate, "parts in which a batch is computed one after the other, to save memory")
      ->check(tool::whole_number(1, most_batch));
  const auto optimizers = joined(optimizer_names(), ", ") + "; lars and lamb are for large batches";
  add("--optimizer", o.optimizer, optimizers.c_str())->check(CLI::IsMember(optimizer_names()));
  add("--learning-rate", o.learning_rate, "at the start")->check(tool::number_above(0));
  add("--schedule", o.schedule, "of the learning rate: constant, cosine, step or linear")
      ->check(CLI::IsMember({"constant", "cosine", "step", "linear"}));
  add("--warm-up", o.warm_up, "epochs in which the learning rate rises from 0")->check(tool::number_between(0, most_epochs));
  app.add_option("--milestones", o.milestones,
                 "epochs at which schedule step lowers the rate, separated by commas (default: 1/2 and 3/4 of all)")
      ->delimiter(',')
      ->check(tool::number_between(0, most_epochs))
      ->group("Training");
  add("--decay-factor", o.decay_factor, "by which schedule step lowers the rate")->check(tool::number_above(0));
  const auto of_momentum = "of " + joined(optimizers_with_momentum(), " and ");
  add("--momentum", o.momentum, of_momentum.c_str())->check(tool::number_between(0, 0.99999));
  add("--weight-decay", o.weight_decay, "of all weights but biases and norms")->check(tool::number_from(0));
  add("--clip-norm", o.clip_norm, "largest global norm of the gradients; 0: no limit")->check(tool::number_from(0));
  add("--seed", o.seed, "of weights, order, augmentation and dropout; the same for every grid")->check(tool::whole_number(0));
}

void add_noise_option(CLI::App& app, Options& o) {
  app.add_flag(
         "--noise-scale", o.noise_scale,
         "measure the gradient noise scale, which says how many samples in a step, and so how many workers, still help; where "
         "each of several ranks has samples of its own")
      ->group("Training");
}

void add_mllog_option(CLI::App& app, Options& o) {
  app.add_flag("--mllog", o.mllog, "write mllog.txt: the lines of MLPerf's logs")->group("Files");
  app.add_option("--mllog-entry", o.mllog_entries,
                 "KEY=TEXT: a line of --mllog that only the submitter knows, such as submission_org=NAME")
      ->group("Files");
}

void add_average_option(CLI::App& app, Options& o) {
  app.add_option(
         "--average-weights", o.average_weights,
         "DECAY, such as 0.999: keep an exponential average of the weights over about 1 / (1 - DECAY) steps, which is evaluated, "
         "and is what weights.h5 and best.h5 hold; checkpoints hold both; 0: not")
      ->check(tool::number_between(0, 0.9999999))
      ->capture_default_str()
      ->group("Training");
}

void add_profile_option(CLI::App& app, Options& o) {
  app.add_flag(
         "--profile", o.profile,
         "of the third to the seventh step: trace.json in --out, for https://ui.perfetto.dev, with lanes of every rank, and a "
         "table of the costliest ops")
      ->group("Output");
}

void add_stop_options(CLI::App& app, Options& o) {
  app.add_option("--patience", o.patience,
                 "end when the test's loss, or where there is none the training's, was no better for so many epochs; 0: never")
      ->check(tool::whole_number(0, 1000000000))
      ->capture_default_str()
      ->group("Training");
  app.add_option("--minutes", o.minutes, "begin no epoch after so many minutes of training; 0: no limit")
      ->check(tool::number_from(0))
      ->capture_default_str()
      ->group("Training");
}

void add_file_options(CLI::App& app, Options& o) {
  app.add_option("--out", o.out, "folder for weights, tables and picture")->capture_default_str()->group("Files");
  app.add_flag("--overwrite", o.overwrite, "replace files of an earlier run there")->group("Files");
  app.add_option("--weights", o.weights, "start from the weights in this file")->group("Files");
  app.add_option(
         "--take", o.take,
         "of --weights, of another network: `common`, what both have under one name and of one shape; or patterns of this "
         "network's names, \"encoder.*\", each with the name in the file behind a = where that is another, "
         "\"encoder.*=backbone.*\"")
      ->group("Files");
  app.add_option("--freeze", o.freeze, "patterns of parameters that training leaves as they are, \"encoder.*\"")
      ->group("Training");
  app.add_option("--checkpoint-every", o.checkpoint_every, "write checkpoint.h5 after every so many epochs; 0: never")
      ->check(tool::whole_number(0, 1000000000))
      ->capture_default_str()
      ->group("Files");
  app.add_option("--checkpoint-steps", o.checkpoint_steps, "and after every so many steps; 0: not")
      ->check(tool::whole_number(0, 1000000000))
      ->capture_default_str()
      ->group("Files");
  app.add_option("--checkpoint-minutes", o.checkpoint_minutes, "and when so many minutes have passed since the last; 0: not")
      ->check(tool::number_from(0))
      ->capture_default_str()
      ->group("Files");
  app.add_option("--keep-checkpoints", o.keep_checkpoints,
                 "how many of the newest stay: checkpoint.h5, and checkpoint-STEP.h5 before it")
      ->check(tool::whole_number(1, 1000000000))
      ->capture_default_str()
      ->group("Files");
  app.add_flag("--keep-best", o.keep_best,
               "best.h5: the weights of the epoch with the best loss on the test, or where there is none on the training")
      ->group("Files");
  app.add_flag(
         "--wait-for-checkpoints", o.wait_for_checkpoints,
         "training stands still until a checkpoint is on the disk, and none is skipped; else rank 0 writes a copy meanwhile, "
         "and skips those that are due before that is done")
      ->group("Files");
  app.add_option(
         "--local-copies", o.local_copies,
         "folder on a disk of each node, such as /tmp: a checkpoint every --local-steps steps on rank 0's node and on another "
         "one, of weights that are split or sharded each rank's part on its node and on another one; --resume without a name "
         "goes on from them where they are newer than those in --out. Folders of other users are refused; what ended trainings "
         "of this user have left there is removed")
      ->group("Files");
  app.add_option("--local-steps", o.local_steps, "of --local-copies")->check(tool::whole_number(1, 1000000000))->group("Files");
  app.add_option(
         "--mtbf", o.mtbf,
         "hours between two failures of so many nodes, on average: at the end it is said after how many minutes a checkpoint "
         "would lose the least time, by what they took")
      ->check(tool::number_from(0))
      ->group("Files");
  app.add_option(
         "--time-limit", o.time_limit,
         "end with a checkpoint and exit code 75 (and a file `state` in --out that says interrupted, as launchers may lose the "
         "code) before so many minutes have passed since the start, as SIGTERM, SIGINT and SIGUSR1 make it at once; 0: no limit")
      ->check(tool::number_from(0))
      ->capture_default_str()
      ->group("Files");
  app.add_option(
         "--resume", o.resume,
         "go on from this checkpoint, on any grid, or from the newest whole one in this folder; without a name, in --out, "
         "and from the start where there is none; checkpoints of the start, where --out has none of it, and of the end are "
         "written, too, so that the same command goes on whenever it dies")
      ->expected(0, 1)
      ->default_str(newest_in_out)
      ->group("Files");
  app.add_flag("--allow-changes", o.allow_changes,
               "--resume with another learning rate or schedule; other differences are only told")
      ->group("Files");
  app.add_flag("--quiet", o.quiet, "no progress")->group("Output");
  app.add_flag("--json", o.json, "print one JSON document and nothing else")->group("Output");
}

void add_describe_flag(CLI::App& app, Options& o) {
  app.add_flag("--describe", o.describe,
               "print the layers and what a step of --batch costs, and train nothing; needs neither data nor ranks")
      ->group("Description");
}

void add_describe_options(CLI::App& app, Options& o) {
  add_describe_flag(app, o);
  app.add_option("--size", o.size, "side of the volumes described (default: the data's, else 128)")
      ->check(tool::whole_number(1, 1 << 20))
      ->group("Description");
}

void check_device(const Options& o) {
  if (o.autotune && current_device() != DeviceKind::cuda)
    throw UsageError("--autotune times the kernels of a GPU: --device cuda goes with it");
  if (o.graph && current_device() != DeviceKind::cuda)
    throw UsageError("--graph repeats the work of a GPU: --device cuda goes with it");
}

void check(const Options& o) {
  if (o.dtype == "float64" && !o.precision.empty())
    throw UsageError(fmt::format("--precision {} is beside parameters of float32, not of --dtype float64", o.precision));
  if (o.batch % o.accumulate != 0)
    throw UsageError(fmt::format("--batch {} cannot be computed in --accumulate {} equal parts", o.batch, o.accumulate));
  if (o.describe) return;
  if (o.size != 0) throw UsageError("--size is for --describe; volumes that are trained on have their own");
  check_device(o);
  if (o.communication == "none" && current_device() != DeviceKind::cpu)
    throw UsageError("--communication none is for --device cpu");
  if (o.profile && current_device() != DeviceKind::cpu) throw UsageError("--profile is for --device cpu");
  if (o.data.empty()) throw UsageError("--data is needed");
  if (o.out.empty()) throw UsageError("--out is not empty");
  if (!o.weights.empty() && !o.resume.empty()) throw UsageError("--weights and --resume: one of the two");
  for (const auto& entry : o.mllog_entries)
    if (entry.find('=') == std::string::npos || entry.front() == '=') throw UsageError("--mllog-entry is KEY=TEXT: " + entry);
  if (!o.mllog_entries.empty() && !o.mllog) throw UsageError("--mllog-entry is of --mllog");
  if (o.local_copies.empty() != (o.local_steps == 0)) throw UsageError("--local-copies and --local-steps: both or none");
  if (!o.take.empty() && o.weights.empty()) throw UsageError("--take is of --weights");
  if (o.allow_changes && o.resume.empty()) throw UsageError("--allow-changes is of --resume");
  if (o.take.size() > 1 && std::find(o.take.begin(), o.take.end(), "common") != o.take.end())
    throw UsageError("--take: `common`, or patterns");
  if (o.epochs == 0) throw UsageError("--epochs 0 trains nothing: the command `evaluate` scores weights");
  if (!std::is_sorted(o.milestones.begin(), o.milestones.end())) throw UsageError("--milestones ascend");
  for (const auto* option : {"--milestones", "--decay-factor"})
    if (o.given.contains(option) && o.schedule != "step")
      throw UsageError(fmt::format("{} is of --schedule step, not of {}", option, o.schedule));
  if (o.given.contains("--momentum") && !takes_momentum(o))
    throw UsageError(
        fmt::format("--momentum is of --optimizer {}, not of {}", joined(optimizers_with_momentum(), " and "), o.optimizer));
}

void warn(const Options& o, const std::set<std::string>& own, int rank) {
  auto effective = own;
  if (o.describe) {
    effective.insert({"--data", "--describe", "--size", "--grid", "--grid-of", "--sharded-weights", "--batch", "--accumulate",
                      "--dtype", "--precision", "--keep", "--optimizer", "--momentum", "--statistics", "--json"});
    tool::warn_of_no_effect(o.given, effective, "--describe", rank);
    return;
  }
  if (rank != 0) return;
  const auto epochs = static_cast<double>(o.epochs);
  if (!o.milestones.empty() && o.milestones.back() >= epochs)
    fmt::print(stderr, "warning: --milestones {}: nothing is lowered after the last of --epochs {}\n", o.milestones.back(),
               o.epochs);
  if (o.checkpoint_every > o.epochs && o.resume.empty())
    fmt::print(stderr, "warning: --checkpoint-every {}: no checkpoint comes of --epochs {}\n", o.checkpoint_every, o.epochs);
}

}  // namespace mpigrad::trainer
