#include "examples/trainers/contrastive/options.h"

#include <algorithm>

namespace mpigrad::contrast {
namespace {

using trainer::Keys, trainer::above, trainer::between, trainer::from, trainer::one_of, trainer::whole;

constexpr std::int64_t most = 1000000000;

void add_split_keys(Keys& keys, DataOptions& o) {
  trainer::add_worker_key(keys, o);
  trainer::add_label_key(keys, o);
  keys.add("data.where", o.where, "NAME=V,V,...: only samples with one of these labels; samples meet the conditions of all names")
      .instead_of("--where");
  keys.add("data.test_where", o.test_where, "NAME=V,V,...: samples with one of these labels are for the test")
      .instead_of("--test-where");
  keys.add("data.test_fraction", o.test_fraction, between(0, 0.999), "part of the samples, drawn at random, that is for the test")
      .instead_of("--test-fraction");
  keys.add("data.split_seed", o.split_seed, whole(0), "seed of the draw of data.test_fraction").instead_of("--split-seed");
}

void add_network_keys(Keys& keys, NetworkOptions& o) {
  keys.add("network.encoder", o.encoder,
           one_of({"conv4", "resnet10", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "encoder3d"}),
           "conv4 (tiny images), a ResNet (images) or encoder3d (volumes)")
      .with_flag("--encoder");
  keys.add("network.width", o.width, whole(1, 65536), "channels of the first stage")
      .with_default("64, of encoder3d 16")
      .instead_of("--width");
  keys.add("network.blocks", o.blocks, whole(1, 100), "blocks of each stage of encoder3d, such as 1,1,1,1; of conv4 one number")
      .with_default("the encoder's own")
      .instead_of("--blocks");
  keys.add("network.growth", o.growth, above(0), "factor from each block's channels of conv4 to the next one's").instead_of("--growth");
  keys.add("network.average", o.average, "conv4 ends in a mean over the image instead of all of it in a row").instead_of("--average");
  keys.add("network.small_images", o.small_images, "ResNets begin with a 3 x 3 convolution of stride 1, without pooling")
      .instead_of("--small-images");
  keys.add("network.head_layers", o.head_layers, whole(0, 3), "layers of the projection head; 0: none")
      .with_default("those of the loss's paper")
      .instead_of("--head-layers");
  keys.add("network.head_hidden", o.head_hidden, whole(1, 65536), "width of the head's hidden layers").instead_of("--head-hidden");
  keys.add("network.head_out", o.head_out, whole(1, 65536), "width of the embeddings that the loss compares").instead_of("--head-out");
  keys.add("network.prototypes", o.prototypes, whole(1, 1000000), "classes into which swav sorts").instead_of("--prototypes");
}

void add_loss_keys(Keys& keys, TrainOptions& o) {
  keys.add("loss.name", o.loss, one_of({"nt-xent", "supcon", "clip", "siglip", "barlow", "vicreg", "spectral", "moco", "swav"}),
           "the loss; supcon uses labels")
      .with_flag("--loss");
  keys.add("loss.temperature", o.temperature, above(0), "temperature of nt-xent, supcon, swav and moco")
      .with_default("0.1, of moco 0.07")
      .instead_of("--temperature");
  keys.add("loss.form", o.form, one_of({"direct", "ring"}),
           "how nt-xent, supcon and clip compare samples: direct, or ring, which never holds all similarities")
      .instead_of("--form");
  keys.add("loss.tile", o.tile, whole(0, most), "rows of a tile of the ring; 0: 1024, on a GPU 4096").instead_of("--tile");
  keys.add("loss.lambda", o.lambda, from(0), "factor of barlow's redundancy").instead_of("--lambda");
  keys.add("loss.queue", o.queue, whole(0, most), "keys of moco, or samples of each crop that swav assigns along (0: none)")
      .instead_of("--queue");
  keys.add("loss.key_momentum", o.key_momentum, between(0, 1), "momentum of moco's key encoder").instead_of("--key-momentum");
  keys.add("loss.freeze_prototypes", o.freeze_prototypes, whole(0, most), "time for which swav's prototypes stay as they are")
      .with_unit("steps")
      .instead_of("--freeze-prototypes");
  keys.add("loss.small_crops", o.small_crops, whole(0, 64), "views of swav besides the two large ones").instead_of("--small-crops");
  keys.add("loss.small_size", o.small_size, "extents of the small crops, as H,W or D,H,W")
      .with_unit("cells")
      .with_default("half of data.size")
      .instead_of("--small-size");
  keys.add("loss.cached", o.cached, whole(0, most),
           "parts in which a batch is encoded, one after the other, with the exact gradient of the whole; with network.frozen_norm; 0: "
           "not")
      .instead_of("--cached");
  keys.add("network.frozen_norm", o.frozen_norm, "batch norms use their running statistics, also while training")
      .instead_of("--frozen-norm");
}

void add_view_keys(Keys& keys, TrainOptions& o) {
  keys.add("data.size", o.source.size, "extents of the views, as H,W or D,H,W")
      .with_unit("cells")
      .with_default("the samples'")
      .instead_of("--size");
  keys.add("data.augment", o.augment,
           "how a view is made: steps separated by commas, each NAME or NAME:KEY=VALUE:... Recipes: simclr, handwriting, volume, none. "
           "Steps: crop (area, to), cut (padding), flip (axis), turn, mirror, warp (rotation, shear, scale, stretch, move, elastic, "
           "spacing), colour (strength), grey, blur (low, high), intensity (strength), noise (deviation), erase (area); p=PROBABILITY "
           "goes with each")
      .with_default("by the data")
      .with_flag("--augment");
}

void add_encode_keys(Keys& keys, EncodeOptions& o) {
  trainer::add_sample_keys(keys, o.source);
  add_split_keys(keys, o.source);
  keys.add("data.batch", o.batch, whole(1, most), "samples that are encoded at once, of all ranks together")
      .with_unit("samples")
      .with_flag("--batch");
  keys.add("network.weights", o.weights, "weights.h5 or checkpoint.h5 of a training").with_flag("--weights");
  keys.add("network.projected", o.projected, "the projection head's output instead of the features").instead_of("--projected");
  trainer::add_grid_key(keys, o);
  trainer::add_precision_keys(keys, o);
  for (const auto* name : {"precision.compute", "precision.graph"}) keys.remove(name);
}

}  // namespace

void add_keys(Keys& keys, TrainOptions& o) {
  o.out = "contrastive-out";
  o.batch = 256;
  trainer::add_sample_keys(keys, o.source);
  add_split_keys(keys, o.source);
  add_view_keys(keys, o);
  add_loss_keys(keys, o);
  add_network_keys(keys, o.network);
  trainer::add_norm_keys(keys, o);
  trainer::add_training_keys(keys, o);
  keys.add("schedule.monitor", o.monitor, whole(0, most),
           "training samples in which each epoch ends with a look for neighbours and collapse; 0: none")
      .with_unit("samples")
      .instead_of("--monitor");
  keys.add("schedule.skip_bad", o.skip_bad, "leaves out batches with samples that are not finite, instead of ending")
      .instead_of("--skip-bad");
  trainer::add_precision_keys(keys, o);
  trainer::add_grid_keys(keys, o);
  trainer::add_checkpoint_keys(keys, o);
  trainer::add_report_keys(keys, o);
  keys["schedule.batch"].help = "samples in a step, of all ranks together; two views of each";
  keys["schedule.epochs"].help = "passes over the training set; 0 writes the weights as they begin";
  for (const auto* name : {"network.keep", "optimizer.average_weights", "schedule.accumulate", "precision.graph", "grid.layers",
                           "grid.communication", "report.profile", "report.noise_scale"})
    keys.remove(name);
}

void add_keys(Keys& keys, EmbedOptions& o) {
  o.batch = 256, o.out = "embeddings";
  add_encode_keys(keys, o);
}

void add_keys(Keys& keys, EvaluateOptions& o) {
  o.batch = 256;
  add_encode_keys(keys, o);
  keys.add("data.size", o.source.size, "extents of the samples, as H,W or D,H,W, with evaluation.pixels")
      .with_unit("cells")
      .instead_of("--size");
  keys.add("data.test_path", o.test_data, "the test set, where it is another file").instead_of("--test-data");
  keys.add("data.test_part", o.test_part, "the test set, where it is another part of the data, such as val")
      .instead_of("--test-part");
  keys.add("evaluation.pixels", o.pixels, "evaluates the samples themselves instead of an encoder's features")
      .instead_of("--pixels");
  keys.add("evaluation.metrics", o.metrics, one_of({"knn", "probe", "retrieval", "geometry", "none"}), "what is measured")
      .with_default("all that make sense")
      .instead_of("--metrics");
  keys.add("evaluation.neighbours", o.neighbours, whole(1, most), "neighbours that vote in knn").instead_of("--neighbours");
  keys.add("evaluation.decay", o.decay, from(0), "decay of the probe's squared weights, halved").instead_of("--decay");
  keys.add("evaluation.few_shot", o.few_shot, whole(1, most),
           "SUPPORT,QUERY: episodes, in which so many test samples of a class are known and so many others are classified")
      .instead_of("--few-shot");
  keys.add("evaluation.ways", o.ways, whole(2, most), "classes of an episode of few-shot classification").instead_of("--ways");
  keys.add("evaluation.episodes", o.episodes, whole(1, most), "episodes of few-shot classification").instead_of("--episodes");
  keys.add("evaluation.group", o.group, "name of the labels of which an episode's classes share one, such as the alphabet")
      .instead_of("--group");
  keys.add("seed", o.seed, whole(0), "of episodes and views").with_flag("--seed");
}

void check(const TrainOptions& o) {
  auto common = o;
  common.data = o.source.data;
  // Untrained weights are worth a look here.
  if (common.epochs == 0) common.epochs = 1;
  trainer::check(common);
  if (o.batch < 2) throw UsageError("--batch 1 has nothing to contrast a sample with; 2 or more");
  const auto loss_is = [&](auto... names) { return ((o.loss == names) || ...); };
  if (o.form == "ring" && !loss_is("nt-xent", "supcon", "clip"))
    throw UsageError(fmt::format("loss.form ring is of nt-xent, supcon and clip, not of {}", o.loss));
  if (o.temperature > 0 && !loss_is("nt-xent", "supcon", "moco", "swav"))
    throw UsageError(fmt::format("loss.temperature: {} has none that is chosen", o.loss));
  if (o.small_crops > 0 && o.loss != "swav") throw UsageError("loss.small_crops are of swav");
  if (!o.small_size.empty() && o.small_crops == 0) throw UsageError("loss.small_size is of loss.small_crops");
  if (o.small_crops > 0 && o.network.encoder == "conv4" && !o.network.average)
    throw UsageError("loss.small_crops: features of conv4 depend on the extents without network.average");
  if (o.loss == "moco" && o.queue < o.batch)
    throw UsageError(fmt::format("loss.queue {} of moco holds at least one --batch, {}", o.queue, o.batch));
  if (o.loss == "swav" && o.queue > 0 && o.queue < o.batch)
    throw UsageError(fmt::format("loss.queue {} holds at least one --batch, {}; 0 is none", o.queue, o.batch));
  if (loss_is("moco", "swav") && o.network.head_layers == 0)
    throw UsageError(fmt::format("network.head_layers 0: {} needs a projection head", o.loss));
  if (o.cached > 0 && loss_is("moco", "swav")) throw UsageError(fmt::format("loss.cached is not for {}", o.loss));
  if (o.cached > 0 && !o.frozen_norm)
    throw UsageError("loss.cached needs network.frozen_norm: statistics of a part of a batch are others than those of the batch");
  if (o.network.encoder == "conv4" && o.network.blocks.size() > 1) throw UsageError("network.blocks of conv4 is one number");
}

void check(const EvaluateOptions& o) {
  if (o.weights.empty() != o.pixels) throw UsageError("--weights or --pixels: one of the two is evaluated");
  if (o.pixels && o.projected) throw UsageError("--projected is for --weights");
  if (!o.pixels && !o.source.size.empty())
    throw UsageError("--size is for --pixels: a network's samples have the extents of its training");
  if (!o.test_data.empty() && !o.test_part.empty()) throw UsageError("--test-data and --test-part: one of the two");
  if ((!o.test_data.empty() || !o.test_part.empty()) && (o.source.test_fraction > 0 || !o.source.test_where.empty()))
    throw UsageError("--test-data and --test-part are the whole test set: no --test-fraction and no --test-where");
  if (!o.few_shot.empty() && o.few_shot.size() != 2) throw UsageError("--few-shot is SUPPORT,QUERY, such as 1,1");
  for (const auto* key : {"evaluation.ways", "evaluation.episodes", "evaluation.group"})
    if (o.few_shot.empty() && o.given.contains(key)) throw UsageError(fmt::format("{} is of --few-shot", key));
}

namespace {

// Keys without effect where `idle` holds, and why.
struct NoEffect {
  bool idle;
  std::vector<const char*> keys;
  std::string why;
};

// A line for each key that was given and has no effect, on rank 0.
void say(const trainer::Options& o, const std::vector<NoEffect>& table, int rank) {
  auto given = o.given;
  if (o.overwrite) given.insert("--overwrite");
  for (const auto& row : table)
    for (const auto* key : row.keys)
      if (row.idle && rank == 0 && given.contains(key)) fmt::print(stderr, "warning: {} has no effect: {}\n", key, row.why);
}

// Keys of steps and of what is written after some of them.
std::vector<const char*> keys_of_training() {
  return {"optimizer.learning_rate", "schedule.shape",       "schedule.warm_up",        "schedule.milestones",   "schedule.decay_factor",
          "optimizer.weight_decay",  "optimizer.clip_norm",  "checkpoint.epochs",       "checkpoint.steps",      "checkpoint.minutes",
          "checkpoint.keep",         "checkpoint.best",      "checkpoint.wait",         "checkpoint.local_folder", "checkpoint.local_steps",
          "checkpoint.mtbf",         "report.mllog",         "report.mllog_entries",    "checkpoint.time_limit", "schedule.skip_bad",
          "schedule.patience",       "schedule.minutes"};
}

}  // namespace

void warn(const TrainOptions& o, int rank) {
  const auto& encoder = o.network.encoder;
  const bool resnet = encoder.starts_with("resnet");
  const auto of_loss = [&](const char* names) { return fmt::format("it is of --loss {}, not of {}", names, o.loss); };
  const char *no_epochs = "--epochs 0 trains nothing", *describes = "--describe trains nothing";
  say(o,
      {{o.form != "ring", {"loss.tile"}, "it is of loss.form ring"},
       {o.loss != "barlow", {"loss.lambda"}, of_loss("barlow")},
       {o.loss != "moco" && o.loss != "swav", {"loss.queue"}, of_loss("moco and swav")},
       {o.loss != "moco", {"loss.key_momentum"}, of_loss("moco")},
       {o.loss != "swav", {"loss.freeze_prototypes", "network.prototypes"}, of_loss("swav")},
       {encoder != "conv4", {"network.growth", "network.average"}, fmt::format("it is of --encoder conv4, not of {}", encoder)},
       {resnet, {"network.blocks"}, fmt::format("{} has the blocks of its name", encoder)},
       {!resnet, {"network.small_images"}, fmt::format("it is of ResNets, not of --encoder {}", encoder)},
       {o.network.head_layers == 0, {"network.head_hidden", "network.head_out"}, "there is no head, network.head_layers 0"},
       {o.network.head_layers == 1, {"network.head_hidden"}, "the head has one layer, network.head_layers 1"},
       {o.frozen_norm,
        {"network.statistics", "network.norm_momentum"},
        "batch norms use their running statistics, network.frozen_norm"},
       {o.source.test_fraction == 0, {"data.split_seed"}, "nothing is drawn without data.test_fraction"},
       {o.epochs == 0, keys_of_training(), no_epochs},
       {o.epochs == 0, {"optimizer.name", "optimizer.momentum"}, no_epochs},
       {o.describe, keys_of_training(), describes},
       {o.describe,
        {"schedule.epochs", "seed", "--overwrite", "network.weights", "schedule.monitor", "data.workers", "data.where",
         "data.test_where", "data.test_fraction", "data.split_seed"},
        describes}},
      rank);
  if (o.epochs > 0 && !o.describe) trainer::warn(o, {}, rank);
}

void warn(const EmbedOptions& o, int rank) {
  say(o,
      {{true,
        {"data.label", "data.test_where", "data.test_fraction", "data.split_seed"},
        "embed writes all samples and all labels"}},
      rank);
}

void warn(const EvaluateOptions& o, int rank) {
  const auto measures = [&](const char* metric) {
    return o.metrics.empty() || std::find(o.metrics.begin(), o.metrics.end(), metric) != o.metrics.end();
  };
  const bool drawn = o.source.test_fraction > 0 || (o.source.test_where.empty() && o.test_data.empty() && o.test_part.empty());
  say(o,
      {{!measures("knn"), {"evaluation.neighbours"}, "evaluation.metrics has no knn"},
       {!measures("probe"), {"evaluation.decay"}, "evaluation.metrics has no probe"},
       {!measures("geometry") && o.few_shot.empty(),
        {"seed"},
        "there are neither episodes nor views, without evaluation.few_shot and geometry"},
       {o.out.empty(), {"--overwrite"}, "nothing is written without --out"},
       {!drawn, {"data.split_seed"}, "the test set is not drawn"}},
      rank);
}

}  // namespace mpigrad::contrast
