#include "examples/trainers/contrastive/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace mpigrad::contrast {
namespace {

constexpr std::int64_t most = 1000000000;

template <class T>
CLI::Option* add(CLI::App& app, const char* group, const char* name, T& value, const std::string& text) {
  return app.add_option(name, value, text)->group(group);
}

void add_list(CLI::App& app, const char* name, std::vector<std::string>& value, const char* text) {
  add(app, "Data", name, value, text)->allow_extra_args(false);
}

void add_split_options(CLI::App& app, DataOptions& o) {
  trainer::add_worker_option(app, o);
  trainer::add_label_option(app, o);
  add_list(app, "--where", o.where, "NAME=V,V,...: only samples with one of these labels; may be given several times");
  add_list(app, "--test-where", o.test_where, "NAME=V,V,...: samples with one of these labels are for the test");
  add(app, "Data", "--test-fraction", o.test_fraction, "of the samples, drawn at random, that are for the test")
      ->check(tool::number_between(0, 0.999))
      ->capture_default_str();
  add(app, "Data", "--split-seed", o.split_seed, "of the draw of --test-fraction")
      ->check(tool::whole_number(0))
      ->capture_default_str();
}

void add_network_options(CLI::App& app, NetworkOptions& o) {
  constexpr const char* group = "Network";
  add(app, group, "--encoder", o.encoder, "conv4 (tiny images), resnet10 to resnet152 (images) or encoder3d (volumes)")
      ->check(CLI::IsMember({"conv4", "resnet10", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "encoder3d"}))
      ->capture_default_str();
  add(app, group, "--width", o.width, "channels of the first stage (default: 64, of encoder3d 16)")
      ->check(tool::whole_number(1, 65536));
  add(app, group, "--blocks", o.blocks, "of each stage of encoder3d, such as 1,1,1,1; of conv4 one number")
      ->delimiter(',')
      ->check(tool::whole_number(1, 100));
  add(app, group, "--growth", o.growth, "of conv4: each block has so many times the channels of the last")
      ->check(tool::number_above(0))
      ->capture_default_str();
  app.add_flag("--average", o.average, "conv4 ends in a mean over the image instead of all of it in a row")->group(group);
  app.add_flag("--small-images", o.small_images, "ResNets begin with a 3 x 3 convolution of stride 1, without pooling")
      ->group(group);
  add(app, group, "--head-layers", o.head_layers, "of the projection head, 1 to 3; 0: none (default: the loss's paper's)")
      ->check(tool::whole_number(0, 3));
  add(app, group, "--head-hidden", o.head_hidden, "width of its hidden layers")
      ->check(tool::whole_number(1, 65536))
      ->capture_default_str();
  add(app, group, "--head-out", o.head_out, "width of what the loss sees")
      ->check(tool::whole_number(1, 65536))
      ->capture_default_str();
  add(app, group, "--prototypes", o.prototypes, "classes into which swav sorts")
      ->check(tool::whole_number(1, 1000000))
      ->capture_default_str();
}

void add_loss_options(CLI::App& app, TrainOptions& o) {
  constexpr const char* group = "Loss";
  add(app, group, "--loss", o.loss, "nt-xent, supcon (uses labels), clip, siglip, barlow, vicreg, spectral, moco or swav")
      ->check(CLI::IsMember({"nt-xent", "supcon", "clip", "siglip", "barlow", "vicreg", "spectral", "moco", "swav"}))
      ->capture_default_str();
  add(app, group, "--temperature", o.temperature, "of nt-xent, supcon and swav (default 0.1), of moco (0.07)")
      ->check(tool::number_above(0));
  add(app, group, "--form", o.form, "of nt-xent, supcon and clip: direct, or ring, which never holds all similarities")
      ->check(CLI::IsMember({"direct", "ring"}))
      ->capture_default_str();
  add(app, group, "--tile", o.tile, "rows of a tile of the ring; 0: 1024, on a GPU 4096")
      ->check(tool::whole_number(0, most))
      ->capture_default_str();
  add(app, group, "--lambda", o.lambda, "of barlow, in front of the redundancy")
      ->check(tool::number_from(0))
      ->capture_default_str();
  add(app, group, "--queue", o.queue, "keys of moco, or samples of each crop that swav assigns along (0: none)")
      ->check(tool::whole_number(0, most))
      ->capture_default_str();
  add(app, group, "--key-momentum", o.key_momentum, "of moco's key encoder")
      ->check(tool::number_between(0, 1))
      ->capture_default_str();
  add(app, group, "--freeze-prototypes", o.freeze_prototypes, "steps for which those of swav stay as they are")
      ->check(tool::whole_number(0, most))
      ->capture_default_str();
  add(app, group, "--small-crops", o.small_crops, "views of swav besides the two large ones")->check(tool::whole_number(0, 64));
  add(app, group, "--small-size", o.small_size, "extents of the small crops, as H,W or D,H,W (default: half of --size)");
  add(app, group, "--cached", o.cached,
      "encode a batch in so many parts, one after the other, with the exact gradient of the whole; with --frozen-norm")
      ->check(tool::whole_number(0, most));
  app.add_flag("--frozen-norm", o.frozen_norm, "batch norms use their running statistics, also while training")->group(group);
}

// Options of all trainers that mean nothing here.
void remove(CLI::App& app, std::initializer_list<const char*> names) {
  for (const auto* name : names) app.remove_option(app.get_option(name));
}

void add_encode_options(CLI::App& app, EncodeOptions& o) {
  trainer::add_sample_options(app, o.source);
  add_split_options(app, o.source);
  trainer::add_grid_option(app, o);
  trainer::add_device_options(app, o);
  add(app, "Network", "--weights", o.weights, "weights.h5 or checkpoint.h5 of a training");
  app.add_flag("--projected", o.projected, "what the projection head makes of the features")->group("Network");
  add(app, "Network", "--batch", o.batch, "samples that are encoded at once, of all ranks together")
      ->check(tool::whole_number(1, most))
      ->capture_default_str();
  add(app, "Files", "--out", o.out, "folder for what is written");
  app.add_flag("--overwrite", o.overwrite, "replace files of an earlier run there")->group("Files");
  app.add_flag("--json", o.json, "print one JSON document and nothing else")->group("Output");
  remove(app, {"--graph"});
}

}  // namespace

void add_options(CLI::App& app, TrainOptions& o) {
  o.out = "contrastive-out";
  o.batch = 256;
  trainer::add_sample_options(app, o.source);
  add_split_options(app, o.source);
  add(app, "Data", "--size", o.source.size, "extents of the views, as H,W or D,H,W (default: the samples')");
  add(app, "Data", "--augment", o.augment,
      "how a view is made: steps separated by commas, each NAME or NAME:KEY=VALUE:... Recipes: simclr, handwriting, volume, none "
      "(default: by the data). Steps: crop (area, to), cut (padding), flip (axis), turn, mirror, warp (rotation, shear, scale, "
      "stretch, move, elastic, spacing), colour (strength), grey, blur (low, high), intensity (strength), noise (deviation), "
      "erase (area); p=PROBABILITY goes with each");
  trainer::add_data_options(app, o);
  trainer::add_grid_option(app, o);
  trainer::add_sharded_weights_option(app, o);
  trainer::add_device_options(app, o);
  add_loss_options(app, o);
  add_network_options(app, o.network);
  trainer::add_norm_options(app, o);
  trainer::add_training_options(app, o);
  trainer::add_stop_options(app, o);
  app.get_option("--batch")->description("samples per step, of all ranks together; two views of each");
  app.get_option("--epochs")->description("passes over the training set; 0 writes the weights as they begin");
  add(app, "Training", "--monitor", o.monitor, "training samples looked at after each epoch: neighbours, collapse; 0: none")
      ->check(tool::whole_number(0, most))
      ->capture_default_str();
  app.add_flag("--skip-bad", o.skip_bad, "leave out batches with samples that are not finite, instead of ending")
      ->group("Training");
  trainer::add_file_options(app, o);
  trainer::add_mllog_option(app, o);
  trainer::add_describe_flag(app, o);
  app.get_option("--describe")
      ->description("print the layers and what a step costs, and train nothing; with --size without data");
  remove(app, {"--flips", "--accumulate", "--keep", "--graph"});
}

void add_options(CLI::App& app, EmbedOptions& o) {
  o.batch = 256, o.out = "embeddings";
  add_encode_options(app, o);
}

void add_options(CLI::App& app, EvaluateOptions& o) {
  o.batch = 256;
  add_encode_options(app, o);
  constexpr const char* group = "Evaluation";
  app.add_flag("--pixels", o.pixels, "evaluate the samples themselves instead of an encoder's features")->group(group);
  add(app, group, "--size", o.source.size, "extents of the samples, with --pixels");
  add(app, group, "--test-data", o.test_data, "the test set, where it is another file");
  add(app, group, "--test-part", o.test_part, "the test set, where it is another part of the data, such as val");
  add(app, group, "--metrics", o.metrics,
      "of knn, probe, retrieval, geometry; separated by commas (default: all that make sense)")
      ->delimiter(',')
      ->check(CLI::IsMember({"knn", "probe", "retrieval", "geometry", "none"}));
  add(app, group, "--neighbours", o.neighbours, "that vote in knn")->check(tool::whole_number(1, most))->capture_default_str();
  add(app, group, "--decay", o.decay, "of the probe's squared weights, halved")
      ->check(tool::number_from(0))
      ->capture_default_str();
  add(app, group, "--few-shot", o.few_shot,
      "SUPPORT QUERY: episodes, in which so many test samples of a class are known and so many others are classified")
      ->expected(2)
      ->check(tool::whole_number(1, most));
  add(app, group, "--ways", o.ways, "classes of an episode of --few-shot")
      ->check(tool::whole_number(2, most))
      ->capture_default_str();
  add(app, group, "--episodes", o.episodes, "of --few-shot")->check(tool::whole_number(1, most))->capture_default_str();
  add(app, group, "--group", o.group, "name of the labels of which an episode's classes share one, such as the alphabet");
  for (const auto* name : {"--ways", "--episodes", "--group"}) app.get_option(name)->needs("--few-shot");
  add(app, group, "--seed", o.seed, "of episodes and views")->check(tool::whole_number(0))->capture_default_str();
}

void check(const TrainOptions& o) {
  auto common = o;
  common.data = o.source.data;
  // Untrained weights are worth a look here.
  if (common.epochs == 0) common.epochs = 1;
  trainer::check(common);
  if (o.batch < 2) throw UsageError("--batch 1 has nothing to contrast a sample with; 2 or more");
  if (o.dtype == "float64" && !o.precision.empty()) throw UsageError("--precision is for --dtype float32");
  const bool has_form = o.loss == "nt-xent" || o.loss == "supcon" || o.loss == "clip";
  if (o.form == "ring" && !has_form)
    throw UsageError(fmt::format("--form ring is of nt-xent, supcon and clip, not of {}", o.loss));
  const bool has_temperature = o.loss == "nt-xent" || o.loss == "supcon" || o.loss == "moco" || o.loss == "swav";
  if (o.temperature > 0 && !has_temperature) throw UsageError(fmt::format("--temperature: {} has none that is chosen", o.loss));
  if (o.small_crops > 0 && o.loss != "swav") throw UsageError("--small-crops are of swav");
  if (!o.small_size.empty() && o.small_crops == 0) throw UsageError("--small-size is of --small-crops");
  if (o.small_crops > 0 && o.network.encoder == "conv4" && !o.network.average)
    throw UsageError("--small-crops: features of conv4 depend on the extents without --average");
  if (o.loss == "moco" && o.queue < o.batch)
    throw UsageError(fmt::format("--queue {} of moco holds at least one --batch, {}", o.queue, o.batch));
  if (o.loss == "swav" && o.queue > 0 && o.queue < o.batch)
    throw UsageError(fmt::format("--queue {} holds at least one --batch, {}; 0 is none", o.queue, o.batch));
  if ((o.loss == "moco" || o.loss == "swav") && o.network.head_layers == 0)
    throw UsageError(fmt::format("--head-layers 0: {} needs a projection head", o.loss));
  if (o.cached > 0 && (o.loss == "moco" || o.loss == "swav")) throw UsageError(fmt::format("--cached is not for {}", o.loss));
  if (o.cached > 0 && !o.frozen_norm)
    throw UsageError("--cached needs --frozen-norm: statistics of a part of a batch are others than those of the batch");
  if (o.network.encoder == "conv4" && o.network.blocks.size() > 1) throw UsageError("--blocks of conv4 is one number");
}

void check(const EvaluateOptions& o) {
  if (o.weights.empty() != o.pixels) throw UsageError("--weights or --pixels: one of the two is evaluated");
  if (o.pixels && o.projected) throw UsageError("--projected is for --weights");
  if (!o.pixels && !o.source.size.empty())
    throw UsageError("--size is for --pixels: a network's samples have the extents of its training");
  if (!o.test_data.empty() && !o.test_part.empty()) throw UsageError("--test-data and --test-part: one of the two");
  if ((!o.test_data.empty() || !o.test_part.empty()) && (o.source.test_fraction > 0 || !o.source.test_where.empty()))
    throw UsageError("--test-data and --test-part are the whole test set: no --test-fraction and no --test-where");
}

namespace {

// On one rank, a line for each option that was given and is not `effective`.
class Idle {
 public:
  Idle(const std::set<std::string>& given, int rank) : given_(given), rank_(rank) {}
  void operator()(bool effective, std::initializer_list<const char*> options, const std::string& why) const {
    if (effective || rank_ != 0) return;
    for (const auto* option : options)
      if (given_.contains(option)) fmt::print(stderr, "warning: {} has no effect: {}\n", option, why);
  }

 private:
  const std::set<std::string>& given_;
  int rank_;
};

bool draws_test(const DataOptions& o) { return o.test_fraction > 0; }

}  // namespace

void warn(const TrainOptions& o, int rank) {
  const Idle only(o.given, rank);
  const auto loss_is = [&](auto... names) { return ((o.loss == names) || ...); };
  const auto& encoder = o.network.encoder;
  const auto of_loss = [&](const char* names) { return fmt::format("it is of --loss {}, not of {}", names, o.loss); };
  only(o.form == "ring", {"--tile"}, "it is of --form ring");
  only(loss_is("barlow"), {"--lambda"}, of_loss("barlow"));
  only(loss_is("moco", "swav"), {"--queue"}, of_loss("moco and swav"));
  only(loss_is("moco"), {"--key-momentum"}, of_loss("moco"));
  only(loss_is("swav"), {"--freeze-prototypes", "--prototypes"}, of_loss("swav"));
  only(encoder == "conv4", {"--growth", "--average"}, fmt::format("it is of --encoder conv4, not of {}", encoder));
  only(!encoder.starts_with("resnet"), {"--blocks"}, fmt::format("{} has the blocks of its name", encoder));
  only(encoder.starts_with("resnet"), {"--small-images"}, fmt::format("it is of ResNets, not of --encoder {}", encoder));
  only(o.network.head_layers != 0, {"--head-hidden", "--head-out"}, "there is no head, --head-layers 0");
  only(o.network.head_layers != 1, {"--head-hidden"}, "the head has one layer, --head-layers 1");
  only(!o.frozen_norm, {"--statistics", "--norm-momentum"}, "batch norms use their running statistics, --frozen-norm");
  only(draws_test(o.source), {"--split-seed"}, "nothing is drawn without --test-fraction");
  const auto of_training = [&](bool trains, const std::string& why) {
    only(trains,
         {"--learning-rate",
          "--schedule",
          "--warm-up",
          "--milestones",
          "--decay-factor",
          "--weight-decay",
          "--clip-norm",
          "--checkpoint-every",
          "--checkpoint-steps",
          "--checkpoint-minutes",
          "--keep-checkpoints",
          "--keep-best",
          "--wait-for-checkpoints",
          "--local-copies",
          "--local-steps",
          "--mtbf",
          "--mllog",
          "--mllog-entry",
          "--time-limit",
          "--skip-bad",
          "--patience",
          "--minutes"},
         why);
  };
  const auto *no_epochs = "--epochs 0 trains nothing", *describes = "--describe trains nothing";
  of_training(o.epochs > 0, no_epochs);
  only(o.epochs > 0, {"--optimizer", "--momentum"}, no_epochs);
  of_training(!o.describe, describes);
  only(!o.describe,
       {"--epochs", "--seed", "--out", "--overwrite", "--weights", "--resume", "--quiet", "--monitor", "--workers", "--where",
        "--test-where", "--test-fraction", "--split-seed"},
       describes);
  if (o.epochs > 0 && !o.describe) trainer::warn(o, {}, rank);
}

void warn(const EmbedOptions& o, int rank) {
  const Idle only(o.given, rank);
  only(false, {"--label", "--test-where", "--test-fraction", "--split-seed"}, "embed writes all samples and all labels");
}

void warn(const EvaluateOptions& o, int rank) {
  const Idle only(o.given, rank);
  const auto measures = [&](const char* metric) {
    return o.metrics.empty() || std::find(o.metrics.begin(), o.metrics.end(), metric) != o.metrics.end();
  };
  only(measures("knn"), {"--neighbours"}, "--metrics has no knn");
  only(measures("probe"), {"--decay"}, "--metrics has no probe");
  only(measures("geometry") || !o.few_shot.empty(), {"--seed"},
       "there are neither episodes nor views, without --few-shot and geometry");
  only(!o.out.empty(), {"--overwrite"}, "nothing is written without --out");
  only(draws_test(o.source) || (o.source.test_where.empty() && o.test_data.empty() && o.test_part.empty()), {"--split-seed"},
       "the test set is not drawn");
}

}  // namespace mpigrad::contrast
