#pragma once
// Embeddings of a whole set of samples, on any grid.

#include "comm/distributed/grid.h"
#include "models/data/augment/recipe.h"
#include "models/data/source.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/trainer/contrastive/network.h"

namespace mpigrad::contrast {

struct EncodeAttributes {
  GridPtr grid{};
  std::int64_t batch = 256;
  int workers = 1;
  bool projected = false;
  augment::Recipe recipe{};
  int views = 1;
  std::uint64_t seed = 0;  // for random recipes
  bool refuse_bad = true;  // true: a sample that is not finite is an Error; false: its embedding is not finite
};

// Embeddings of each view, [samples, width], the same on every rank, in CPU memory, in the order of `samples`. Computed in
// evaluation mode; the network's mode is restored. Collective. With refuse_bad a sample that is not finite is an Error on all
// ranks.
Tensors encode(Network& net, const data::SourcePtr& source, const std::vector<std::int64_t>& samples, const Communicator& world,
               const EncodeAttributes& attributes);
// Values of each view, [samples, D * H * W * C].
Tensors pixels(const data::SourcePtr& source, const std::vector<std::int64_t>& samples, const Communicator& world,
               const EncodeAttributes& attributes);
// Throws UsageError with the sample's name if an embedding is not finite.
void require_finite_embeddings(const Tensor& z, const data::Source& source, const std::vector<std::int64_t>& samples);
// This rank's rows, for functions whose rows are distributed over the ranks.
Tensor part_of(const Tensor& whole, const Communicator& world);

// A network read from a file of weights, and the notes of the file.
struct Loaded {
  CheckpointInfo info;
  NetworkConfig config;
  std::unique_ptr<Network> net;
};
// Errors: those of reading the file; a file that another program wrote.
Loaded load_network(const std::string& weights, const Communicator& world);

// Throws Error if samples have other channels or another kind than those that the network was trained on.
void require_fitting(const NetworkConfig& config, const data::Source& source);

}  // namespace mpigrad::contrast
