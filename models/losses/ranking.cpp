#include "models/losses/ranking.h"

#include <limits>

#include "models/losses/contrastive/batch.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {

Tensor auc_loss(const Tensor& scores, const Tensor& labels, const Communicator& comm, const AucOptions& options) {
  const bool integers = labels.dtype() == DType::int64 || labels.dtype() == DType::boolean;
  const auto batch = contrastive::inspect(
      "auc_loss", {scores}, comm,
      {.smallest = 1, .refuse_zeros = false, .labels_fit = integers && labels.rank() == 1 && labels.dim(0) == scores.dim(0)});
  require(batch.width == 1, "[auc_loss] each sample has one score, [n, 1]: {}", scores);
  const auto& s = batch.views[0];
  Tensor mine, others, pairs;  // 1 for a positive sample of this rank; 1 for a negative sample of any rank; |+| |-|, at least 1
  {
    Untaped scope;
    mine = constant(reshape(cast(labels.without_layout() != 0, s.dtype()), {batch.here, 1}));
    others = constant(1 - transpose(allgather(mine, batch.comm, batch.rows)));
    const auto negative = sum(others);
    pairs = constant(clamp(negative * (static_cast<double>(batch.all) - negative), 1, std::numeric_limits<double>::infinity()));
  }
  const auto short_of = relu(options.margin - (s - transpose(allgather(s, batch.comm, batch.rows))));
  return batch.share(sum(square(short_of) * mine * others) / pairs);
}

}  // namespace mpigrad
