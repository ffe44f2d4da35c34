#include "models/losses/ranking.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "models/losses/contrastive/batch.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {

namespace {

constexpr std::int64_t most_pairs = 1 << 20;

// The sum over pairs of this rank's positive samples with the negative ones of all ranks, divided by the number of all pairs.
Tensor loss_of_pairs(const Tensor& s, const Tensor& all, const Tensor& my_labels, const Tensor& all_labels,
                     const AucOptions& options) {
  Tensor weights;  // [here, all]: 1 / (|+| |-|) for such a pair
  {
    Untaped scope;
    const auto indicator = [&](const Tensor& labels) {
      return reshape(cast(labels.without_layout() != 0, s.dtype()), {labels.dim(0), 1});
    };
    const auto negative = 1 - indicator(all_labels), count = sum(negative);
    const auto pairs = count * (static_cast<double>(all.dim(0)) - count);
    weights = constant(indicator(my_labels) * transpose(negative) / clamp(pairs, 1, std::numeric_limits<double>::infinity()));
  }
  return sum(square(relu(options.margin - (s - transpose(all)))) * weights);
}

}  // namespace

Tensor auc_loss(const Tensor& scores, const Tensor& labels, const Communicator& comm, const AucOptions& options) {
  if (!comm) {
    require(scores.rank() == 2 && scores.dim(1) == 1 && labels.rank() == 1 && labels.dim(0) == scores.dim(0),
            "[auc_loss] each sample has one score, [n, 1], and one label, [n]: {} and {}", scores, labels);
    // Blocks of rows: a whole set that is scored has too many pairs for one matrix.
    const auto n = scores.dim(0), rows = std::max<std::int64_t>(1, most_pairs / std::max<std::int64_t>(1, n));
    Tensor total;
    std::int64_t row = 0;
    do {
      const auto end = std::min(n, row + rows);
      const auto part = loss_of_pairs(slice(scores, 0, row, end), scores, slice(labels, 0, row, end), labels, options);
      total = total ? total + part : part;
      row = end;
    } while (row < n);
    return total;
  }
  const bool integers = labels.dtype() == DType::int64 || labels.dtype() == DType::boolean;
  const auto batch = contrastive::inspect(
      "auc_loss", {scores}, comm,
      {.smallest = 1, .refuse_zeros = false, .labels_fit = integers && labels.rank() == 1 && labels.dim(0) == scores.dim(0)});
  require(batch.width == 1, "[auc_loss] each sample has one score, [n, 1]: {}", scores);
  const auto& s = batch.views[0];
  const auto all = allgather(s, batch.comm, batch.rows);
  Tensor mine, labels_of_all;
  {
    Untaped scope;
    mine = cast(labels.without_layout() != 0, s.dtype());
    labels_of_all = allgather(mine, batch.comm, batch.rows);
  }
  return batch.share(loss_of_pairs(s, all, mine, labels_of_all, options));
}

}  // namespace mpigrad
