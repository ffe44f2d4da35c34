#include "models/trainer/contrastive/options.h"

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
  keys.add("network.growth", o.growth, above(0), "factor from each block's channels of conv4 to the next one's")
      .instead_of("--growth");
  keys.add("network.average", o.average, "conv4 ends in a mean over the image instead of a flattened image")
      .instead_of("--average");
  keys.add("network.small_images", o.small_images, "ResNets begin with a 3 x 3 convolution of stride 1, without pooling")
      .instead_of("--small-images");
  keys.add("network.head_layers", o.head_layers, whole(0, 3), "layers of the projection head; 0: none")
      .with_default("those of the loss's paper")
      .instead_of("--head-layers");
  keys.add("network.head_hidden", o.head_hidden, whole(1, 65536), "width of the head's hidden layers")
      .instead_of("--head-hidden");
  keys.add("network.head_out", o.head_out, whole(1, 65536), "width of the embeddings that the loss compares")
      .instead_of("--head-out");
  keys.add("network.prototypes", o.prototypes, whole(1, 1000000), "classes into which swav and dino sort samples")
      .instead_of("--prototypes");
}

void add_loss_keys(Keys& keys, TrainOptions& o) {
  keys.add("loss.name", o.loss,
           one_of({"nt-xent", "supcon", "clip", "siglip", "barlow", "vicreg", "lejepa", "spectral", "moco", "swav", "dino"}),
           "the loss; supcon uses labels")
      .with_flag("--loss");
  keys.add("loss.temperature", o.temperature, above(0), "temperature of nt-xent, supcon, swav, moco and dino's student")
      .with_default("0.1, of moco 0.07")
      .instead_of("--temperature");
  keys.add("loss.form", o.form, one_of({"direct", "ring"}),
           "how nt-xent, supcon and clip compare samples: direct, or ring, which never stores all similarities")
      .instead_of("--form");
  keys.add("loss.tile", o.tile, whole(0, most), "rows of a tile of the ring; 0: 1024, on a GPU 4096").instead_of("--tile");
  keys.add("loss.lambda", o.lambda, from(0), "factor of barlow's redundancy; weight of lejepa's SIGReg, at most 1")
      .with_default("0.0051, of lejepa 0.05")
      .instead_of("--lambda");
  keys.add("loss.slices", o.slices, whole(1, 1000000), "random directions of lejepa's SIGReg in each step");
  keys.add("loss.queue", o.queue, whole(0, most), "keys of moco, or samples of each crop that swav assigns along (0: none)")
      .instead_of("--queue");
  keys.add("loss.key_momentum", o.key_momentum, between(0, 1), "momentum of moco's key encoder and of dino's teacher")
      .instead_of("--key-momentum");
  keys.add("loss.teacher_temperature", o.teacher_temperature, above(0), "temperature of dino's teacher");
  keys.add("loss.centre_momentum", o.centre_momentum, between(0, 1), "momentum of the centre of the scores of dino's teacher");
  keys.add("loss.koleo", o.koleo, from(0),
           "weight of a KoLeo term for the embeddings of each large view, which spreads them; DINOv2 has 0.1; 0: none");
  keys.add("loss.freeze_prototypes", o.freeze_prototypes, whole(0, most),
           "time for which the prototypes of swav and dino do not change")
      .with_unit("steps")
      .instead_of("--freeze-prototypes");
  keys.add("loss.small_crops", o.small_crops, whole(0, 64), "views of swav in addition to the two large ones")
      .instead_of("--small-crops");
  keys.add("loss.small_size", o.small_size, "extents of the small crops, as H,W or D,H,W")
      .with_unit("cells")
      .with_default("half of data.size")
      .instead_of("--small-size");
  keys.add("loss.cached", o.cached, whole(0, most),
           "parts in which a batch is encoded, one after the other, with the exact gradient of the whole; with "
           "network.frozen_norm; 0: not")
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
           "how a view is made: steps separated by commas, each NAME or NAME:KEY=VALUE:... Recipes: simclr, handwriting, volume, "
           "none. Steps: crop (area, to), cut (padding), flip (axis), turn, mirror, warp (rotation, shear, scale, stretch, move, "
           "elastic, spacing), colour (strength), grey, blur (low, high), intensity (strength), noise (deviation), erase (area); "
           "p=PROBABILITY goes with each")
      .with_default("by the data")
      .with_flag("--augment");
}

void add_encode_keys(Keys& keys, EncodeOptions& o) {
  trainer::add_sample_keys(keys, o.source);
  add_split_keys(keys, o.source);
  keys.add("data.batch", o.batch, whole(1, most), "samples encoded at once, on all ranks together")
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
           "training samples in which neighbours and collapse are measured after each epoch; 0: none")
      .with_unit("samples")
      .instead_of("--monitor");
  keys.add("schedule.skip_bad", o.skip_bad, "leaves out batches with samples that are not finite, instead of ending")
      .instead_of("--skip-bad");
  trainer::add_precision_keys(keys, o);
  trainer::add_grid_keys(keys, o);
  trainer::add_checkpoint_keys(keys, o);
  trainer::add_report_keys(keys, o);
  keys["schedule.batch"].help = "samples in a step, on all ranks together; two views of each";
  keys["schedule.epochs"].help = "passes over the training set; 0 writes the initial weights";
  for (const auto* name :
       {"network.keep", "optimizer.average_weights", "schedule.accumulate", "precision.graph", "grid.boundaries", "grid.pipeline",
        "grid.layers", "grid.communication", "report.profile", "report.noise_scale"})
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
  keys.add("data.test_path", o.test_data, "the test set, if it is another file").instead_of("--test-data");
  keys.add("data.test_part", o.test_part, "the test set, if it is another part of the data, such as val")
      .instead_of("--test-part");
  keys.add("evaluation.pixels", o.pixels, "evaluates the samples themselves instead of an encoder's features")
      .instead_of("--pixels");
  keys.add("evaluation.metrics", o.metrics, one_of({"knn", "probe", "retrieval", "geometry", "none"}), "what is measured")
      .with_default("all that are possible")
      .instead_of("--metrics");
  keys.add("evaluation.neighbours", o.neighbours, whole(1, most), "neighbours that vote in knn").instead_of("--neighbours");
  keys.add("evaluation.decay", o.decay, from(0), "decay of the probe's squared weights, halved").instead_of("--decay");
  keys.add("evaluation.few_shot", o.few_shot, whole(1, most),
           "SUPPORT,QUERY: episodes in which SUPPORT test samples of each class are known and QUERY others are classified")
      .instead_of("--few-shot");
  keys.add("evaluation.ways", o.ways, whole(2, most), "classes of an episode of few-shot classification").instead_of("--ways");
  keys.add("evaluation.episodes", o.episodes, whole(1, most), "episodes of few-shot classification").instead_of("--episodes");
  keys.add("evaluation.group", o.group, "name of the labels of which an episode's classes share one, such as the alphabet")
      .instead_of("--group");
  keys.add("seed", o.seed, whole(0), "seed of episodes and views").with_flag("--seed");
}

}  // namespace mpigrad::contrast
