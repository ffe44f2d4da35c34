#pragma once
// Gradients of batches that do not fit (gradient caching, Gao et al. 2021): embeddings of all samples, chunk by chunk and without
// a tape; the loss and its derivatives zbar with respect to the embeddings alone; then each chunk again under a tape, for the
// gradient of <z, zbar>. Exactly the gradient of the whole batch, for the memory of a chunk and one more forward pass.

#include <functional>

#include "comm/communicator.h"
#include "framework/engine/parameter.h"
#include "models/nn/module.h"

namespace mpigrad::contrastive {

struct GradientCacheAttributes {
  std::int64_t samples = 0;  // of this rank; may be 0
  std::int64_t chunk = 32;   // samples that are encoded at once
};

struct CachedGradient {
  Tensor share;  // of the loss, a constant
  Gradients gradients;
};

// Embeddings of this rank's samples `begin` to `end`, one tensor [end - begin, ...] for each view or tower. Parameters enter as
// always, through replicate or layers. Called twice for each chunk, and must do the same both times: random layers do, for a
// fixed set_step. All ranks encode equally often, so that they may communicate; those with fewer samples are asked for none.
using ChunkEncoder = std::function<std::vector<Tensor>(std::int64_t begin, std::int64_t end)>;
// This rank's share of the loss, given the embeddings of all its samples, one tensor for each view. May use parameters, such as a
// temperature.
using EmbeddingLoss = std::function<Tensor(const std::vector<Tensor>& views)>;

// The gradient of loss(encode(0, samples)) with respect to all parameters. One reduction over ranks, after the last chunk.
// Collective over `comm`, all ranks that communicate in the encoder or the loss.
//
// Errors: a layer that uses statistics of the batch (batch norm while training), by its name: those of a chunk are others; an
// encoder that gives other embeddings the second time; another number of rows than asked for.
CachedGradient cached_gradient(Parameters& parameters, const ChunkEncoder& encode, const EmbeddingLoss& loss,
                               const Communicator& comm, const GradientCacheAttributes& attributes);

}  // namespace mpigrad::contrastive
