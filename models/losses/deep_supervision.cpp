#include "models/losses/deep_supervision.h"

#include <cmath>
#include <optional>

#include "comm/distributed/distributed.h"
#include "comm/distributed/redistribute.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

// Labels [N, D, H, W, 1] of every stride-th cell along each axis. A pooling of one cell selects cells on any layout.
Tensor selected(const Tensor& labels, const Triple& stride) {
  return avg_pool(unsqueeze(cast(labels, DType::float32), 4), {.kernel = 1, .stride = stride});
}

Tensor as_labels(const Tensor& cells, DType dtype) { return constant(cast(squeeze(cells, {4}), dtype)); }

// [N, D', H', W'] in the layout of scores.
Tensor coarse_labels(const Tensor& labels, const Triple& stride, const Tensor& scores) {
  Untaped scope;
  auto cells = selected(labels, stride);
  if (cells.layout()) {
    Layout like = *scores.layout();
    like.global[4] = 1;
    cells = redistribute(cells, std::make_shared<Layout>(std::move(like)));
  }
  return as_labels(cells, labels.dtype());
}

// The coarse labels of all micro-batches of a step, of which only the numbers are counted, in any layout.
std::vector<Tensor> coarse_step(const std::vector<Tensor>& step, const Triple& stride) {
  Untaped scope;
  std::vector<Tensor> result;
  for (const auto& labels : step) result.push_back(as_labels(selected(labels, stride), labels.dtype()));
  return result;
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
    std::optional<StepLabels> scope;
    if (const auto* step = StepLabels::current()) scope.emplace(coarse_step(*step, stride));
    result = result + loss(own, coarse_labels(labels, stride, own)) * (std::ldexp(1.0, -static_cast<int>(i) - 1) / sum);
  }
  return result;
}

}  // namespace mpigrad
