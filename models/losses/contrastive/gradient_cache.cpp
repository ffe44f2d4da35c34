#include "models/losses/contrastive/gradient_cache.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

using Views = std::vector<Tensor>;

Views encode_chunk(const ChunkEncoder& encode, std::int64_t begin, std::int64_t end, std::size_t views) {
  const nn::NoBatchStatistics scope("gradient caching encodes in chunks");
  auto result = encode(begin, end);
  require(!result.empty() && (views == 0 || result.size() == views), "[gradient cache] the encoder returned {} views, then {}",
          views, result.size());
  for (auto& z : result) {
    z = z.without_layout();
    require(z.rank() >= 1 && z.dim(0) == end - begin, "[gradient cache] samples {} to {} were requested: {}", begin, end, z);
  }
  return result;
}

// The tolerance is far above rounding, which may differ between two runs, and far below a change of random numbers.
void require_same_embeddings(const Tensor& again, const Tensor& before) {
  if (!again.raw() || again.elements() == 0) return;
  Untaped scope;
  const auto a = cast(again, DType::float64), b = cast(before, DType::float64);
  const double difference = max(abs(a - b)).item(), size = max(abs(b)).item();
  require(!(difference > 1e-2 * size), "[gradient cache] the encoder gave other embeddings the second time: {} off, of {}",
          difference, size);
}

std::int64_t most_of(std::int64_t mine, const Communicator& comm) {
  if (!comm.transport().can_ask()) return mine;
  std::int64_t most = 0;
  comm.transport().allreduce(&mine, &most, 1, DType::int64, CombineOp::max);
  return most;
}

struct LossPart {
  Tensor share;
  Views cotangents;                                 // of the embeddings
  std::vector<std::pair<std::size_t, Tensor>> own;  // parameters that the loss uses, and their gradients
};

LossPart differentiate(const Parameters& parameters, const EmbeddingLoss& loss, const Views& embeddings) {
  Tape tape;
  const auto share = loss(embeddings);
  std::unordered_set<std::uint64_t> used;
  for (const auto& entry : tape.entries())
    for (const auto& x : entry.inputs)
      if (x) used.insert(x.id());
  LossPart part{.share = constant(share), .cotangents = {}, .own = {}};
  Views wanted = embeddings;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!used.contains(parameters[i].value.id())) continue;
    part.own.push_back({i, {}});
    wanted.push_back(parameters[i].value);
  }
  const auto gradients = tape.gradient(share, wanted);
  for (std::size_t v = 0; v < embeddings.size(); ++v) part.cotangents.push_back(constant(gradients[v]));
  for (std::size_t i = 0; i < part.own.size(); ++i) part.own[i].second = gradients[embeddings.size() + i];
  return part;
}

}  // namespace

CachedGradient cached_gradient(Parameters& parameters, const ChunkEncoder& encode, const EmbeddingLoss& loss,
                               const Communicator& comm, const GradientCacheAttributes& at) {
  require(at.chunk > 0 && at.samples >= 0, "[gradient cache] {} samples in chunks of {}", at.samples, at.chunk);
  parameters.require_nothing_accumulated("gradient cache");
  const auto chunks = most_of(std::max<std::int64_t>(1, (at.samples + at.chunk - 1) / at.chunk), comm);
  const auto range = [&](std::int64_t c) {
    return std::pair{std::min(at.samples, c * at.chunk), std::min(at.samples, (c + 1) * at.chunk)};
  };

  Views embeddings;
  {
    Untaped scope;
    std::vector<Views> parts;  // by view
    for (std::int64_t c = 0; c < chunks; ++c) {
      const auto [begin, end] = range(c);
      const auto views = encode_chunk(encode, begin, end, parts.size());
      parts.resize(views.size());
      for (std::size_t v = 0; v < views.size(); ++v) parts[v].push_back(views[v]);
    }
    for (auto& part : parts) embeddings.push_back(concatenate(part, 0).as_variable());
  }

  auto of_loss = differentiate(parameters, loss, embeddings);

  Gradients gradients;
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto [begin, end] = range(c);
    Tape tape(parameters);
    const auto views = encode_chunk(encode, begin, end, embeddings.size());
    Tensor objective;
    for (std::size_t v = 0; v < views.size(); ++v) {
      require_same_embeddings(views[v], constant(slice(embeddings[v], 0, begin, end)));
      const auto term = dot(views[v], constant(slice(of_loss.cotangents[v], 0, begin, end)));
      objective = objective ? objective + term : term;
    }
    gradients = tape.gradient(objective, {.accumulate = c + 1 < chunks});
  }

  auto sums = gradients.tensors();
  for (const auto& [i, gradient] : of_loss.own) sums[i] = sums[i] + gradient;
  return {of_loss.share, Gradients(std::move(sums))};
}

}  // namespace mpigrad::contrastive
