#include <algorithm>
#include <limits>
#include <unordered_map>

#include "comm/collectives/ring.h"
#include "models/losses/contrastive/blocks.h"
#include "models/losses/contrastive/pairs.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

constexpr double no_term = -std::numeric_limits<double>::infinity();  // excludes a term from a sum of exponentials

// The result of both forms for this rank's rows.
struct RowLosses {
  Tensor losses;  // [n], summed over the positives of each row
  Tensor counts;  // [n], the number of positives of each row; a constant
};

// Similarities of this rank's rows to all columns.
RowLosses direct(const Tensor& z, const Tensor& labels, const Batch& batch, const SupConAttributes& at) {
  const auto s = matmul(z * (1 / at.temperature), allgather(z, batch.comm, batch.rows), {.transpose_b = true});
  const auto own = diagonal(batch.here, batch.all, batch.first, z.device());
  Tensor positive, counts, negative;  // [n, M], [n], [n, M]
  {
    Untaped scope;
    const auto alike = equal(unsqueeze(labels, 1), unsqueeze(allgather(labels, batch.comm, batch.rows), 0));
    positive = constant(logical_and(alike, logical_not(own)));
    negative = constant(logical_not(alike));
    counts = constant(sum(cast(positive, s.dtype()), {1}));
  }
  const auto zero = constant(zeros({}, s.dtype()));
  if (at.positives_in_denominator)
    return {counts * logsumexp(masked(s, own, no_term), {1}) - sum(where(positive, s, zero), {1}), counts};
  // -log( e^s / (e^s + sum over negatives) ) = softplus(log(sum over negatives) - s). Without negatives it is 0, whatever the
  // value of the empty sum.
  const auto none = constant(equal(sum(cast(negative, s.dtype()), {1}, true), zero));
  const auto others = logsumexp(masked(s, constant(logical_not(logical_or(negative, none))), no_term), {1}, true);
  return {sum(where(constant(logical_and(positive, logical_not(none))), softplus(others - s), zero), {1}), counts};
}

// Sums over the other samples with the label of each row, on all ranks: A z and A 1, A_ij = 1 for equal labels, i != j. Computes
// sums of a block by label, then one for each row: O(N D) work. The tape keeps only indices.
struct LabelSums {
  Tensor embeddings, counts;
};
LabelSums label_sums(const Tensor& z, const Tensor& labels, const Batch& batch) {
  const auto indices = [](const std::vector<double>& values) {
    return constant(from_vector({static_cast<std::int64_t>(values.size())}, values, DType::int64));
  };
  std::unordered_map<std::int64_t, double> places;  // of this rank's labels
  const auto places_of = [&](const Tensor& of, bool insert) {
    std::vector<double> result;
    const auto here = to(of, DeviceKind::cpu);
    for (std::int64_t i = 0; i < here.elements(); ++i) {
      const auto key = here.data<std::int64_t>()[i];
      if (insert) places.try_emplace(key, static_cast<double>(places.size()));
      const auto found = places.find(key);
      result.push_back(found == places.end() ? -1 : found->second);
    }
    return result;
  };
  if (labels.device() == DeviceKind::dry) return {z, constant(sum(ones_like(constant(z)), {1}))};
  const auto own = indices(places_of(labels, true));
  const auto kinds = static_cast<std::int64_t>(places.size());
  const auto count = [&](const Tensor& at, std::int64_t rows) {
    Untaped scope;
    return constant(take(scatter_add(ones({at.dim(0), 1}, z.dtype()), at, rows), own));
  };
  LabelSums result{-z, constant(full({batch.here, 1}, -1, z.dtype()))};
  for_each_block({z, labels}, batch.comm, batch.rows, [&](const Tensors& block, int) {
    auto at = places_of(block[1], false);
    for (auto& place : at)
      if (place < 0) place = static_cast<double>(kinds);  // a label that no row here has: a row that is not used
    const auto index = indices(at);
    result.embeddings = result.embeddings + take(scatter_add(block[0], index, kinds + 1), own);
    Untaped scope;
    result.counts = constant(result.counts + count(index, kinds + 1));
  });
  return {result.embeddings, constant(squeeze(result.counts, {1}))};
}

// Sum over the positives of softplus(others - s), tile by tile; the backward pass computes tiles again.
Tensor against_negatives(const Tensor& q, const Tensor& others, const Tensor& z, const Tensor& labels, const Batch& batch,
                         std::int64_t tile) {
  Tensors sums(static_cast<std::size_t>((batch.here + tile - 1) / tile));
  const auto part = [&](const Tensor& x, std::int64_t i) { return slice(x, 0, i, std::min(x.dim(0), i + tile)); };
  for_each_block({z, labels}, batch.comm, batch.rows, [&](const Tensors& block, int owner) {
    for (std::int64_t j = 0; j < block[0].dim(0); j += tile) {
      const auto columns = part(block[0], j), names = part(block[1], j);
      for (std::int64_t i = 0; i < batch.here; i += tile) {
        const auto rows = part(q, i), bound = part(others, i), own_names = part(labels, i);
        const bool own = owner == batch.comm.rank();
        const auto sum_of = [=](const Tensor& k) {
          Tensor positive;
          {
            Untaped scope;
            positive = equal(unsqueeze(own_names, 1), unsqueeze(names, 0));
            if (own && i == j) positive = logical_and(positive, logical_not(diagonal(rows.dim(0), rows.dim(0), 0, k.device())));
            positive = constant(positive);
          }
          const auto terms = softplus(bound - matmul(rows, k, {.transpose_b = true}));
          return sum(where(positive, terms, constant(zeros({}, terms.dtype()))), {1});
        };
        auto& all = sums[static_cast<std::size_t>(i / tile)];
        const auto of_tile = recompute(sum_of, columns);
        all = all ? all + of_tile : of_tile;
      }
    }
  });
  return sums.empty() ? sum(q, {1}) : concatenate(sums, 0);
}

// The ring form: without a matrix of similarities.
RowLosses ring(const Tensor& z, const Tensor& labels, const Batch& batch, const SupConAttributes& at) {
  const auto q = z * (1 / at.temperature);
  if (at.positives_in_denominator) {
    const auto positives = label_sums(z, labels, batch);
    const auto denominators = ring_logsumexp(q, z, batch.comm, {.rows = batch.rows, .skip_own = true, .tile = at.tile});
    return {positives.counts * denominators - sum(q * positives.embeddings, {1}), positives.counts};
  }
  Tensor counts;
  {
    Untaped scope;
    counts = label_sums(constant(z), labels, batch).counts;
  }
  const auto others = unsqueeze(ring_logsumexp(q, z, batch.comm, {.rows = batch.rows, .labels = labels, .tile = at.tile}), 1);
  // Without negatives the loss is 0.
  const auto none = constant(equal(constant(others), constant(full({}, no_term, z.dtype()))));
  const auto zero = constant(zeros({}, z.dtype()));
  const auto losses =
      against_negatives(q, where(none, zero, others), z, labels, batch, at.tile == 0 ? ring_tile(z.device()) : at.tile);
  return {where(constant(squeeze(none, {1})), zero, losses), counts};
}

}  // namespace

Tensor sup_con(const Tensor& embeddings, const Tensor& labels, const Communicator& comm, const SupConAttributes& at) {
  require(at.tile >= 0, "[sup_con] a tile has at least one row, got {}", at.tile);
  const bool fit =
      labels.rank() == 1 && labels.dtype() == DType::int64 && embeddings.rank() >= 1 && labels.dim(0) == embeddings.dim(0);
  const auto batch = inspect("sup_con", {embeddings}, comm,
                             {.refuse_zeros = at.refuse_zeros && at.normalise, .temperature = at.temperature, .labels_fit = fit});
  UseDevice device(batch.views[0].device());
  const auto z = at.normalise ? unit_rows(batch.views[0]) : batch.views[0];
  const auto names = constant(labels.without_layout());
  auto [losses, counts] = at.form == Form::ring ? ring(z, names, batch, at) : direct(z, names, batch, at);
  if (at.mean_over_samples) {
    losses = losses / constant(maximum(counts, constant(ones({}, z.dtype()))));
    return batch.share(sum(losses) * (1 / static_cast<double>(batch.all)));
  }
  const auto pairs = std::max(1.0, total(sum(counts), comm));
  return batch.share(sum(losses) * (1 / pairs));
}

}  // namespace mpigrad::contrastive
