#pragma once
// Gradients of batches that do not fit into memory (gradient caching, Gao et al. 2021): computes the embeddings of all samples,
// chunk by chunk and without a tape; then the loss and its derivatives zbar with respect to the embeddings only; then each chunk
// again under a tape, for the gradient of <z, zbar>. This is exactly the gradient of the whole batch; it needs the memory of one
// chunk and one more forward pass.

#include <functional>

#include "comm/communicator.h"
#include "framework/engine/parameter.h"
#include "models/nn/module.h"

namespace mpigrad::contrastive {

struct GradientCacheAttributes {
  std::int64_t samples = 0;  // of this rank; may be 0
  std::int64_t chunk = 32;   // samples encoded at a time
};

struct CachedGradient {
  Tensor share;  // of the loss, a constant
  Gradients gradients;
};

// Embeddings of this rank's samples `begin` to `end`, one tensor [end - begin, ...] for each view or tower. Parameters enter
// through replicate or layers. Called twice for each chunk, and must give the same result both times: random layers do, for a
// fixed set_step. All ranks encode equally often, so that they may communicate; ranks with fewer samples are called with begin =
// end.
using ChunkEncoder = std::function<std::vector<Tensor>(std::int64_t begin, std::int64_t end)>;
// This rank's share of the loss, given the embeddings of all its samples, one tensor for each view. May use parameters, such as a
// temperature.
using EmbeddingLoss = std::function<Tensor(const std::vector<Tensor>& views)>;

// The gradient of loss(encode(0, samples)) with respect to all parameters. One reduction over ranks, after the last chunk.
// Collective over `comm`, all ranks that communicate in the encoder or the loss.
//
// Errors: a layer that uses batch statistics (batch norm while training), which differ between chunks; an encoder that returns
// other embeddings the second time; a wrong number of rows.
CachedGradient cached_gradient(Parameters& parameters, const ChunkEncoder& encode, const EmbeddingLoss& loss,
                               const Communicator& comm, const GradientCacheAttributes& attributes);

}  // namespace mpigrad::contrastive
