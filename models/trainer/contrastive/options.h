#pragma once
// Options of contrastive training, of embedding samples and of evaluating features, with their keys.

#include <cstdint>
#include <string>
#include <vector>

#include "models/trainer/options.h"
#include "models/trainer/samples.h"

namespace mpigrad::contrast {

using trainer::parse_extents, trainer::UsageError;

// Which samples to read, and which are for training and for the test.
struct DataOptions : trainer::SampleOptions {
  std::string size;                                // extents, see parse_extents
  std::vector<std::string> where{}, test_where{};  // see data.h
  double test_fraction = 0;
  std::uint64_t split_seed = 1;
};

struct NetworkOptions {
  std::string encoder = "conv4";
  std::int64_t width = 0;     // 0: the encoder's own
  std::vector<int> blocks{};  // in each stage; one number for conv4
  bool small_images = false, average = false;
  double growth = 1;
  int head_layers = -1;  // negative: as in the loss's paper; 0: none
  std::int64_t head_hidden = 256, head_out = 128, prototypes = 300;
};

struct TrainOptions : trainer::Options {
  DataOptions source{};
  NetworkOptions network{};
  std::string loss = "nt-xent", form = "direct", augment;
  double temperature = -1;  // negative: the loss's default
  std::int64_t tile = 0;
  double lambda = -1;         // negative: the loss's default
  std::int64_t slices = 256;  // of lejepa
  std::int64_t queue = 4096, freeze_prototypes = 0;
  double key_momentum = 0.99;
  double teacher_temperature = 0.04, centre_momentum = 0.9;  // of dino
  double koleo = 0;                                          // weight of the KoLeo term
  int small_crops = 0;
  std::string small_size;
  std::int64_t cached = 0;
  bool frozen_norm = false, skip_bad = false;
  std::int64_t monitor = 512;
};

// Options of both embed and evaluate.
struct EncodeOptions : trainer::Options {
  DataOptions source{};
  bool projected = false;
};

struct EmbedOptions : EncodeOptions {};

struct EvaluateOptions : EncodeOptions {
  bool pixels = false;
  std::string test_data, test_part, group;
  std::vector<std::string> metrics{};
  std::int64_t neighbours = 20, ways = 20, episodes = 400;
  double decay = 1e-4;
  std::vector<std::int64_t> few_shot{};  // support, query
};

void add_keys(trainer::Keys& keys, TrainOptions& options);
void add_keys(trainer::Keys& keys, EmbedOptions& options);
void add_keys(trainer::Keys& keys, EvaluateOptions& options);
// Throws UsageError if options exclude each other.
void check(const TrainOptions& options);
void check(const EvaluateOptions& options);
// Prints which of the given keys have no effect together with the others.
void warn(const TrainOptions& options, int rank);
void warn(const EmbedOptions& options, int rank);
void warn(const EvaluateOptions& options, int rank);

}  // namespace mpigrad::contrast
