#include "models/losses/deep_supervision.h"

#include <cmath>

#include "comm/distributed/distributed.h"
#include "comm/distributed/redistribute.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

// Labels [N, D, H, W] of every stride-th cell along each axis, in the layout of scores.
Tensor coarse_labels(const Tensor& labels, const Triple& stride, const Tensor& scores) {
  Untaped scope;
  // A pooling of one cell selects cells on any layout.
  auto cells = avg_pool(unsqueeze(cast(labels, DType::float32), 4), {.kernel = 1, .stride = stride});
  if (cells.layout()) {
    Layout like = *scores.layout();
    like.global[4] = 1;
    cells = redistribute(cells, std::make_shared<Layout>(std::move(like)));
  }
  return constant(cast(squeeze(cells, {4}), labels.dtype()));
}

}  // namespace

Tensor deep_supervision_loss(const std::function<Tensor(const Tensor& scores, const Tensor& labels)>& loss, const Tensor& scores,
                             const std::vector<CoarseScores>& coarse, const Tensor& labels) {
  double sum = 0;
  for (std::size_t i = 0; i <= coarse.size(); ++i) sum += std::ldexp(1.0, -static_cast<int>(i));
  auto result = loss(scores, labels) * (1 / sum);
  for (std::size_t i = 0; i < coarse.size(); ++i) {
    const auto& [at, stride] = coarse[i];
    require(
        at.rank() == 5 && labels.rank() == 4 && !at.layout() == !labels.layout(),
        "[deep_supervision_loss] needs scores [N, D, H, W, C] and labels [N, D, H, W], both distributed or both local: {}, {}",
        at, labels);
    const auto own = cast(at, scores.dtype());
    result = result + loss(own, coarse_labels(labels, stride, own)) * (std::ldexp(1.0, -static_cast<int>(i) - 1) / sum);
  }
  return result;
}

}  // namespace mpigrad
