#include "models/trainer/options.h"

#include <CLI/CLI.hpp>

#include "framework/base/joined.h"

namespace mpigrad::trainer {
namespace {

// Steps are counted in 64 bits: epochs times steps per epoch, which are fewer than samples.
constexpr int most_epochs = 1000000000, most_batch = 1000000000;

}  // namespace

void add_data_keys(Keys& keys, Options& o) {
  if (keys.find("data.path") == nullptr) keys.add("data.path", o.data, "the samples: a file or a folder").with_flag("--data");
  keys.add("data.flips", o.flips, "flips each spatial axis with probability 1/2").instead_of("--flips");
  keys.add("data.transpositions", o.transpositions,
           "a random order of the spatial axes of each cube: with data.flips the 48 symmetries of a cube")
      .instead_of("--transpositions");
  keys.add("data.shifts", o.shifts, "shifts each volume at random, periodically: for periodic boxes").instead_of("--shifts");
}

void add_reading_keys(Keys& keys, Options& o) {
  keys.add("data.store", o.store, from(0),
           "memory of each rank for samples: the ranks read every sample once, keep it together, in blocks, and send each other "
           "what "
           "the shuffled, flipped and shifted batches of later epochs need")
      .with_unit("GiB")
      .with_default("none: samples are read again where all of them are more than 1 GiB per node")
      .instead_of("--store");
  keys.add("data.read", o.read, one_of({"independent", "collective"}),
           "independent: each rank reads its block; collective: some of the ranks that share a sample read pieces of whole "
           "planes, "
           "4 MiB or more each, and send the others their blocks, for file systems that many ranks share")
      .instead_of("--read");
  keys.add("data.ghosts", o.ghosts, whole(0, 1000),
           "planes around each rank's block that are read together with it, so that the first layer needs no halo exchange: half "
           "its "
           "kernel, and what a pooling after it adds")
      .with_unit("planes")
      .instead_of("--ghosts");
}

void add_precision_keys(Keys& keys, Options& o) {
  keys.add("precision.compute", o.precision, one_of({"float32", "float64", "tf32", "bfloat16", "float16"}),
           "the type in which layers compute. float64 is also the parameters' type; with the others parameters are float32. "
           "tf32: float32 "
           "whose products a GPU may round to 10 bits; float16 scales the loss")
      .with_default("float32")
      .with_flag("--precision")
      .instead_of("--dtype");
  keys.add("precision.deterministic", o.deterministic,
           "the same bits in every run on as many ranks and threads of such machines: sums over ranks in the order of ranks (a "
           "step on "
           "two ranks took 1.1 to 1.4 times as long), and on a GPU only kernels that repeat their bits")
      .instead_of("--deterministic");
  keys.add("precision.autotune", o.autotune,
           "times a GPU's kernels for each convolution at its first call, for 2 s at most, takes the fastest, and keeps the "
           "result for "
           "later runs (MPIGRAD_TUNING_FILE)")
      .instead_of("--autotune");
  keys.add("precision.graph", o.training.fit.graph,
           "captures a training step once on a GPU and repeats it as one piece of work; not with schedule.accumulate or float16; "
           "so far "
           "run on the emulator only")
      .instead_of("--graph");
}

void add_grid_key(Keys& keys, Options& o) {
  keys.add("grid.extents", o.grid,
           "ranks along the axes sample, depth, height, width and, where the network can be split by channels, filter and "
           "channel, such as "
           "sample=2,depth=2; an axis left out is 1. stage: parts of the network on different ranks, each with the grid of the "
           "other "
           "axes (schedule.accumulate is the number of micro-batches). With filter each rank computes some output channels of "
           "every layer, with "
           "channel it takes "
           "some input channels, and it holds that part of the weights")
      .with_default("all ranks along sample")
      .with_flag("--grid");
}

void add_grid_keys(Keys& keys, Options& o) {
  add_grid_key(keys, o);
  keys.add("grid.layers", o.grid_of,
           "layers with a grid of their own, such as conv5-7:sample=4 or linear1:filter=4, of as many ranks as grid.extents; "
           "volumes are "
           "redistributed between layers of different grids")
      .instead_of("--grid-of");
  keys.add("grid.sharded_weights", o.sharded_weights,
           "each rank stores a part of every weight, its gradient and the optimizer's state; weights are gathered where they are "
           "used, "
           "gradients reduced and scattered")
      .instead_of("--sharded-weights");
  keys.add("grid.boundaries", o.boundaries,
           "layers with which the stages of grid.extents begin, but for the first, such as up2: a list, or --set once for each")
      .with_default("stages of about equal floating-point operations");
  keys.add("grid.pipeline", o.pipeline, one_of({"one_forward_one_backward", "fill_drain"}),
           "order of a stage's micro-batches: backward passes as early as possible, which holds fewer activations, or after all "
           "forward passes");
  keys.add("grid.communication", o.communication, one_of({"overlapped", "blocking", "none"}),
           "overlapped: convolutions compute while halos travel, where that pays; blocking: they wait; none: ranks exchange "
           "nothing, which "
           "shows what exchange costs, and what is trained is worthless and not written")
      .instead_of("--communication");
}

void add_norm_keys(Keys& keys, Options& o) {
  keys.add("network.statistics", o.statistics, one_of({"all", "spatial", "batch", "local"}),
           "ranks that share batch statistics: all, spatial (those of the same samples), batch (the same part of all samples) or "
           "local")
      .instead_of("--statistics");
  keys.add("network.norm_momentum", o.norm_momentum, between(0, 0.99999),
           "momentum of the running statistics of batch norm; 0.999 for more than about 5,000 steps")
      .instead_of("--norm-momentum");
  keys.add("network.keep", o.keep, between(1e-3, 1), "probability with which dropout keeps a feature")
      .with_default("the network's own")
      .instead_of("--keep");
}

void add_training_keys(Keys& keys, Options& o) {
  keys.add("seed", o.seed, whole(0), "seed of weights, order, augmentation and dropout; results are the same for every grid")
      .with_flag("--seed");
  keys.add("network.weights", o.weights, "a file of weights to start from").with_flag("--weights");
  keys.add("network.take", o.take,
           "parts of network.weights of another network: `common`, what both have under one name and of one shape, or patterns "
           "of this "
           "network's names, \"encoder.*\", followed by = and the name in the file where it differs, \"encoder.*=backbone.*\"")
      .instead_of("--take");
  keys.add("optimizer.name", o.optimizer, one_of(optimizer_names()), "lars and lamb are for large batches")
      .with_flag("--optimizer");
  keys.add("optimizer.learning_rate", o.optimizer_options.learning_rate, above(0), "learning rate at the start of the schedule")
      .with_flag("--learning-rate");
  keys.add("optimizer.momentum", o.optimizer_options.momentum, between(0, 0.99999),
           fmt::format("momentum of {}", joined(optimizers_with_momentum(), " and ")))
      .instead_of("--momentum");
  keys.add("optimizer.nesterov", o.nesterov, "Nesterov's rule: sgd takes its step from where the momentum leads");
  keys.add("optimizer.weight_decay", o.optimizer_options.weight_decay, from(0), "decay of all weights except biases and norms")
      .instead_of("--weight-decay");
  keys.add("optimizer.clip_norm", o.training.fit.clip_norm, from(0), "largest global norm of the gradients; 0: no limit")
      .instead_of("--clip-norm");
  keys.add("optimizer.average_weights", o.average_weights, between(0, 0.9999999),
           "decay of an exponential average of the weights, over about 1 / (1 - decay) steps, such as 0.999; the average is "
           "evaluated and "
           "written to weights.h5 and best.h5, checkpoints hold both; 0: no average")
      .instead_of("--average-weights");
  keys.add("optimizer.replicated", o.optimizer_options.replicated,
           "every rank updates all weights; otherwise ranks that hold the same weights divide the work, from 1 MiB of state on");
  keys.add("optimizer.freeze", o.freeze, "patterns of parameters that training does not change, such as \"encoder.*\"")
      .instead_of("--freeze");
  keys.add("schedule.epochs", o.training.fit.epochs, whole(0, most_epochs), "passes over the training set")
      .with_unit("epochs")
      .with_flag("--epochs");
  keys.add("schedule.batch", o.batch, whole(1, most_batch), "samples in a step, of all ranks together")
      .with_unit("samples")
      .with_flag("--batch");
  keys.add("schedule.accumulate", o.training.fit.accumulate, whole(1, most_batch),
           "micro-batches in a batch, computed one after the other to save memory")
      .instead_of("--accumulate");
  keys.add("schedule.shape", o.schedule, one_of({"constant", "cosine", "step", "linear", "polynomial"}),
           "schedule of the learning rate")
      .instead_of("--schedule");
  keys.add("schedule.warm_up", o.warm_up, between(0, most_epochs), "time during which the learning rate rises from 0")
      .with_unit("epochs")
      .instead_of("--warm-up");
  keys.add("schedule.milestones", o.milestones, between(0, most_epochs), "epochs at which the shape `step` lowers the rate")
      .with_unit("epochs")
      .with_default("1/2 and 3/4 of all")
      .instead_of("--milestones");
  keys.add("schedule.decay_factor", o.decay_factor, above(0), "factor by which the shape `step` lowers the rate")
      .instead_of("--decay-factor");
  keys.add("schedule.power", o.power, above(0), "exponent of the shape `polynomial`, (1 - step / steps)^power");
  keys.add("schedule.patience", o.training.patience, whole(0, most_epochs),
           "ends the training when schedule.metric was not better for this long; 0: never")
      .with_unit("epochs")
      .instead_of("--patience");
  keys.add("schedule.metric", o.training.monitor,
           "the column of metrics.csv, or train_loss, for early stopping and the best weights")
      .with_default("the validation's loss, or without a validation the training's");
  keys.add("schedule.larger_is_better", o.training.larger_is_better,
           "schedule.metric is better when it is larger, as an accuracy is");
  keys.add("schedule.minutes", o.training.most_minutes, from(0), "starts no epoch after this time of training; 0: no limit")
      .with_unit("minutes")
      .instead_of("--minutes");
}

void add_checkpoint_keys(Keys& keys, Options& o) {
  keys.add("checkpoint.epochs", o.training.checkpoint_every, whole(0, most_epochs),
           "writes checkpoint.h5 after every so many epochs; 0: never")
      .with_unit("epochs")
      .instead_of("--checkpoint-every");
  keys.add("checkpoint.steps", o.training.checkpoint_steps, whole(0, most_epochs),
           "writes checkpoint.h5 after every so many steps; 0: never")
      .with_unit("steps")
      .instead_of("--checkpoint-steps");
  keys.add("checkpoint.minutes", o.training.checkpoint_minutes, from(0),
           "writes checkpoint.h5 when this much time has passed since the last one; 0: never")
      .with_unit("minutes")
      .with_flag("--checkpoint-minutes");
  keys.add("checkpoint.keep", o.training.keep, whole(1, most_epochs),
           "how many of the newest are kept: checkpoint.h5, and checkpoint-STEP.h5 before it")
      .instead_of("--keep-checkpoints");
  keys.add("checkpoint.best", o.training.keep_best, "writes best.h5: the weights of the epoch in which schedule.metric was best")
      .instead_of("--keep-best");
  keys.add("checkpoint.wait", o.training.wait_for_checkpoints,
           "training waits until a checkpoint is on the disk, and none is skipped; otherwise rank 0 writes a copy in the "
           "background and "
           "skips checkpoints that are due before it is done")
      .instead_of("--wait-for-checkpoints");
  keys.add("checkpoint.local_folder", o.training.local_folder,
           "a folder on a disk of each node, such as /tmp: a checkpoint every checkpoint.local_steps steps on rank 0's node and "
           "on another "
           "one, with split or sharded weights each rank's part on its node and on another one; --resume without a name "
           "continues from these "
           "copies where they are newer than those in --out. Folders of other users are refused; copies of this user's ended "
           "trainings are removed")
      .instead_of("--local-copies");
  keys.add("checkpoint.local_steps", o.training.local_steps, whole(1, most_epochs), "steps between two local copies")
      .with_unit("steps")
      .with_default("none")
      .instead_of("--local-steps");
  keys.add("checkpoint.mtbf", o.mtbf, from(0),
           "mean time between two failures of so many nodes: at the end the run says after how many minutes a checkpoint would "
           "lose the "
           "least time, by what checkpoints took")
      .with_unit("hours")
      .instead_of("--mtbf");
  keys.add("checkpoint.time_limit", o.training.time_limit_minutes, from(0),
           "ends with a checkpoint and exit code 75 (and a file `state` in --out that says interrupted) before so much time has "
           "passed since the "
           "start; SIGTERM, SIGINT and SIGUSR1 end a training so at once; 0: no limit")
      .with_unit("minutes")
      .with_flag("--time-limit");
  keys.add("checkpoint.allow_changes", o.allow_changes,
           "lets --resume continue with another learning rate or schedule; other differences only cause warnings")
      .for_one_start()
      .instead_of("--allow-changes");
}

void add_report_keys(Keys& keys, Options& o) {
  keys.add("report.profile", o.profile,
           "profiles the third to the seventh step: trace.json in --out, for https://ui.perfetto.dev, with lanes of every rank, "
           "and a table "
           "of the costliest ops")
      .instead_of("--profile");
  keys.add("report.mllog", o.mllog, "writes mllog.txt: the lines of MLPerf's logs").instead_of("--mllog");
  keys.add("report.mllog_entries", o.mllog_entries,
           "NAME=TEXT: lines of mllog.txt that only the submitter knows, such as submission_org=NAME")
      .instead_of("--mllog-entry");
  keys.add("report.noise_scale", o.noise_scale,
           "measures the gradient noise scale, which says how many samples in a step, and so how many workers, still help; for "
           "runs in which each of "
           "several ranks has samples of its own")
      .instead_of("--noise-scale");
}

void add_trainer_keys(Keys& keys, Options& o) {
  add_data_keys(keys, o);
  add_reading_keys(keys, o);
  add_norm_keys(keys, o);
  add_training_keys(keys, o);
  add_precision_keys(keys, o);
  add_grid_keys(keys, o);
  add_checkpoint_keys(keys, o);
  add_report_keys(keys, o);
}

void add_run_flags(CLI::App& app, Options& o) {
  o.device = name_of(current_device());
  app.add_option("--device", o.device, "cpu, or cuda: the ranks of a node take its GPUs in turn; also MPIGRAD_DEVICE")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--out", o.out, "folder for output")->capture_default_str();
  app.add_flag("--overwrite", o.overwrite, "replace files of an earlier run there");
  app.add_flag("--quiet", o.quiet, "no progress");
  app.add_flag("--json", o.json, "print one JSON document and nothing else");
}

void add_training_flags(CLI::App& app, Options& o) {
  add_run_flags(app, o);
  app.add_option("--resume", o.resume,
                 "continue from this checkpoint, on any grid, or from the newest whole one in this folder; without a name from "
                 "that in --out, "
                 "and from the start where there is none; checkpoints of the start, where --out has none of it, and of the end "
                 "are written, too, "
                 "so that the same command continues whenever it dies")
      ->expected(0, 1)
      ->default_str(newest_in_out);
  app.add_flag("--describe", o.describe,
               "print the layers and what a step of schedule.batch costs, and train nothing; needs neither data nor ranks");
  app.add_flag(
      "--explain", o.explain,
      "print what the training is going to do: network, data and their order, optimizer, schedule, grid, files; write nothing");
}

void add_size_flag(CLI::App& app, Options& o) {
  app.add_option("--size", o.size, "side of the volumes that --describe describes (default: the data's, else 128)")
      ->check(tool::whole_number(1, 1 << 20));
}

}  // namespace mpigrad::trainer
