// Checks for options that exclude each other, and warnings about keys without effect.

#include <algorithm>

#include "models/trainer/contrastive/options.h"

namespace mpigrad::contrast {

void check(const TrainOptions& o) {
  auto common = o;
  common.data = o.source.data;
  // --epochs 0 (untrained weights) is valid here.
  if (common.training.fit.epochs == 0) common.training.fit.epochs = 1;
  trainer::check(common);
  if (o.batch < 2) throw UsageError("--batch 1 has nothing to contrast a sample with; 2 or more");
  const auto loss_is = [&](auto... names) { return ((o.loss == names) || ...); };
  if (o.form == "ring" && !loss_is("nt-xent", "supcon", "clip"))
    throw UsageError(fmt::format("loss.form ring is of nt-xent, supcon and clip, not of {}", o.loss));
  if (o.temperature > 0 && !loss_is("nt-xent", "supcon", "moco", "swav", "dino"))
    throw UsageError(fmt::format("loss.temperature: {} has no such option", o.loss));
  if (o.loss == "lejepa" && o.lambda > 1) throw UsageError(fmt::format("loss.lambda of lejepa is at most 1, got {}", o.lambda));
  if (o.small_crops > 0 && o.loss != "swav") throw UsageError("loss.small_crops needs --loss swav");
  if (!o.small_size.empty() && o.small_crops == 0) throw UsageError("loss.small_size needs loss.small_crops");
  if (o.small_crops > 0 && o.network.encoder == "conv4" && !o.network.average)
    throw UsageError("loss.small_crops: features of conv4 depend on the extents without network.average");
  if (o.loss == "moco" && o.queue < o.batch)
    throw UsageError(fmt::format("loss.queue {} of moco holds at least one --batch, {}", o.queue, o.batch));
  if (o.loss == "swav" && o.queue > 0 && o.queue < o.batch)
    throw UsageError(fmt::format("loss.queue {} holds at least one --batch, {}; 0 is none", o.queue, o.batch));
  if (loss_is("moco", "swav", "dino") && o.network.head_layers == 0)
    throw UsageError(fmt::format("network.head_layers 0: {} needs a projection head", o.loss));
  if (o.cached > 0 && loss_is("moco", "swav", "dino")) throw UsageError(fmt::format("loss.cached is not for {}", o.loss));
  if (o.cached > 0 && !o.frozen_norm)
    throw UsageError("loss.cached needs network.frozen_norm: the statistics of a part of a batch differ from those of the batch");
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
    if (o.few_shot.empty() && o.given.contains(key)) throw UsageError(fmt::format("{} needs --few-shot", key));
}

namespace {

// Keys of training steps and of files written during training.
std::vector<const char*> keys_of_training() {
  return {"optimizer.learning_rate",   "schedule.shape",    "schedule.warm_up",   "schedule.milestones",
          "schedule.decay_factor",     "schedule.power",    "optimizer.nesterov", "optimizer.weight_decay",
          "optimizer.clip_norm",       "checkpoint.epochs", "checkpoint.steps",   "checkpoint.minutes",
          "checkpoint.keep",           "checkpoint.best",   "checkpoint.wait",    "checkpoint.local_folder",
          "checkpoint.local_steps",    "checkpoint.mtbf",   "report.mllog",       "report.mllog_entries",
          "checkpoint.time_limit",     "schedule.skip_bad", "schedule.patience",  "schedule.metric",
          "schedule.larger_is_better", "schedule.minutes"};
}

}  // namespace

void warn(const TrainOptions& o, int rank) {
  const auto& encoder = o.network.encoder;
  const bool resnet = encoder.starts_with("resnet");
  const auto of_loss = [&](const char* names) { return fmt::format("it is of --loss {}, not of {}", names, o.loss); };
  const char *no_epochs = "--epochs 0 trains nothing", *describes = "--describe trains nothing";
  trainer::warn_of(
      o,
      {{o.form != "ring", {"loss.tile"}, "it is of loss.form ring"},
       {o.loss != "barlow" && o.loss != "lejepa", {"loss.lambda"}, of_loss("barlow and lejepa")},
       {o.loss != "lejepa", {"loss.slices"}, of_loss("lejepa")},
       {o.loss != "moco" && o.loss != "swav", {"loss.queue"}, of_loss("moco and swav")},
       {o.loss != "moco" && o.loss != "dino", {"loss.key_momentum"}, of_loss("moco and dino")},
       {o.loss != "swav" && o.loss != "dino", {"loss.freeze_prototypes", "network.prototypes"}, of_loss("swav and dino")},
       {o.loss != "dino", {"loss.teacher_temperature", "loss.centre_momentum"}, of_loss("dino")},
       {encoder != "conv4", {"network.growth", "network.average"}, fmt::format("it is for --encoder conv4, not {}", encoder)},
       {resnet, {"network.blocks"}, fmt::format("the name {} determines the blocks", encoder)},
       {!resnet, {"network.small_images"}, fmt::format("it is for ResNets, not --encoder {}", encoder)},
       {o.network.head_layers == 0, {"network.head_hidden", "network.head_out"}, "there is no head, network.head_layers 0"},
       {o.network.head_layers == 1, {"network.head_hidden"}, "the head has one layer, network.head_layers 1"},
       {o.frozen_norm,
        {"network.statistics", "network.norm_momentum"},
        "batch norms use their running statistics, network.frozen_norm"},
       {o.source.test_fraction == 0, {"data.split_seed"}, "nothing is drawn without data.test_fraction"},
       {o.training.fit.epochs == 0, keys_of_training(), no_epochs},
       {o.training.fit.epochs == 0, {"optimizer.name", "optimizer.momentum"}, no_epochs},
       {o.describe, keys_of_training(), describes},
       {o.describe,
        {"schedule.epochs", "seed", "--overwrite", "network.weights", "schedule.monitor", "data.workers", "data.where",
         "data.test_where", "data.test_fraction", "data.split_seed"},
        describes}},
      rank);
  if (o.training.fit.epochs > 0 && !o.describe) trainer::warn(o, {}, rank);
}

void warn(const EmbedOptions& o, int rank) {
  trainer::warn_of(o,
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
  trainer::warn_of(o,
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
