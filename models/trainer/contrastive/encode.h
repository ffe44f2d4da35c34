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
  std::uint64_t seed = 0;  // of random recipes
  bool refuse_bad = true;  // samples that are not finite; else their embeddings are not
};

// Of each view [samples, width], the same on every rank, in CPU memory, in the order of `samples`. In evaluation mode; the mode
// stays as it was. Collective. A sample that is not finite is an Error on all ranks.
Tensors encode(Network& net, const data::SourcePtr& source, const std::vector<std::int64_t>& samples, const Communicator& world,
               const EncodeAttributes& attributes);
// Of each view [samples, D * H * W * C].
Tensors pixels(const data::SourcePtr& source, const std::vector<std::int64_t>& samples, const Communicator& world,
               const EncodeAttributes& attributes);
// UsageError: an embedding that is not finite, with the name of its sample.
void require_finite_embeddings(const Tensor& z, const data::Source& source, const std::vector<std::int64_t>& samples);
// This rank's rows, for functions that want them dealt over the ranks.
Tensor part_of(const Tensor& whole, const Communicator& world);

// The network of a file of weights, and the notes of the file.
struct Loaded {
  CheckpointInfo info;
  NetworkConfig config;
  std::unique_ptr<Network> net;
};
// Errors: of reading the file; a file that another program wrote.
Loaded load_network(const std::string& weights, const Communicator& world);

// Error: samples of other channels or kind than the network was trained on.
void require_fitting(const NetworkConfig& config, const data::Source& source);

}  // namespace mpigrad::contrast
