#include "models/losses/segmentation.h"

#include "comm/distributed/invariant.h"
#include "comm/distributed/redistribute.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace mpigrad::segmentation {
namespace {

// Scores in the type of arithmetic, and the mask of the class of each label. counted: 1 for cells that are not ignored, else 0,
// [N, D, H, W, 1]; none if no label is ignored.
struct Compared {
  Tensor scores, chosen, counted{};
};

Compared compared(const char* loss, const Tensor& scores, const Tensor& labels, const std::optional<std::int64_t>& ignored) {
  require(scores.rank() == 5 && labels.rank() == 4, "[{}] needs scores [N, D, H, W, C] and labels [N, D, H, W]: {}, {}", loss,
          scores, labels);
  require(!scores.layout() == !labels.layout(), "[{}] scores and labels are both distributed or both local: {}, {}", loss, scores,
          labels);
  const auto wide = is_half(scores.dtype()) ? cast(scores, DType::float32) : scores;
  Untaped scope;
  const auto chosen = mpigrad::apply(ops::LabelMask{scores.dim(4), ignored}, {labels});
  require(chosen.shape() == scores.shape(), "[{}] labels are for other cells than the scores: {}, {}", loss, labels, scores);
  if (!ignored) return {wide, constant(chosen)};
  return {wide, constant(chosen), constant(sum(cast(chosen, wide.dtype()), {-1}, true))};
}

Tensor number(const Tensor& like, double value) {
  UseDevice device(like.device());
  return constant(full(Shape{}, value, like.dtype()));
}

// Sums over all cells of a sample, [N, C], replicated on the ranks that share it; or over all samples, [1, C].
Tensor over_cells(const Tensor& x, bool whole_batch) {
  auto y = sum(x, whole_batch ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{1, 2, 3});
  if (whole_batch) y = unsqueeze(y, 0);
  if (!y.layout() || !y.layout()->has(Placement::partial)) return y;
  Layout whole = *y.layout();
  for (auto& axis : whole.axes)
    if (axis.placement == Placement::partial) axis = {Placement::replicated, -1, {}};
  return redistribute(y, std::make_shared<Layout>(std::move(whole)));
}

// T, sum p and sum t, each [N, C] or [1, C].
struct Overlap {
  Tensor both, predicted, true_;
};
Overlap overlap_of(const Compared& at, const Tensor& p, const OverlapOptions& o) {
  Overlap result{.both = over_cells(where(at.chosen, p, number(p, 0)), o.whole_batch),
                 .predicted = over_cells(at.counted ? p * at.counted : p, o.whole_batch),
                 .true_ = {}};
  Untaped scope;
  result.true_ = constant(over_cells(cast(at.chosen, p.dtype()), o.whole_batch));
  return result;
}

// The share of this rank of a value that is equal on the ranks that share a sample.
Tensor as_share(const Tensor& value, const Tensor& scores) {
  if (!value.layout()) return value;
  const auto& layout = *value.layout();
  Layout like{layout.grid, value.shape(), std::vector<AxisPlacement>(layout.axes.size(), {Placement::replicated, -1, {}})};
  for (const int axis : scores.layout()->varying_axes()) like.axes[static_cast<std::size_t>(axis)].placement = Placement::partial;
  UseDevice device(value.device());
  return once(value, constant(zeros(value.shape(), value.dtype())).with_layout(std::make_shared<Layout>(std::move(like))));
}

// 1 - mean of the ratios.
Tensor loss_of(const Tensor& ratio, const OverlapOptions& o) {
  const auto classes = ratio.dim(1);
  require(o.background || classes > 1, "[dice] the background is the only class");
  return mean(1 - (o.background ? ratio : slice(ratio, 1, 1, classes)));
}

Tensor dice_of(const Overlap& at, const OverlapOptions& o) {
  return loss_of((2 * at.both + o.smoothing) / (at.predicted + at.true_ + o.smoothing), o);
}

}  // namespace

Tensor soft_dice_loss(const Tensor& scores, const Tensor& labels, const OverlapOptions& options) {
  const auto at = compared("soft_dice_loss", scores, labels, options.ignored);
  return as_share(dice_of(overlap_of(at, softmax(at.scores), options), options), scores);
}

Tensor dice_cross_entropy_loss(const Tensor& scores, const Tensor& labels, const OverlapOptions& options) {
  const auto at = compared("dice_cross_entropy_loss", scores, labels, options.ignored);
  const auto log_p = log_softmax(at.scores);
  const auto dice = dice_of(overlap_of(at, exp(log_p), options), options);
  return (as_share(dice, scores) + negative_log_likelihood(log_p, labels, {.ignore_index = options.ignored})) * 0.5;
}

Tensor tversky_loss(const Tensor& scores, const Tensor& labels, const TverskyOptions& o) {
  require(o.false_positives >= 0 && o.false_negatives >= 0, "[tversky_loss] weights are not negative: {}, {}", o.false_positives,
          o.false_negatives);
  const auto at = compared("tversky_loss", scores, labels, o.overlap.ignored);
  const auto sums = overlap_of(at, softmax(at.scores), o.overlap);
  const double s = o.overlap.smoothing;
  const auto wrong = (sums.predicted - sums.both) * o.false_positives + (sums.true_ - sums.both) * o.false_negatives;
  return as_share(loss_of((sums.both + s) / (sums.both + wrong + s), o.overlap), scores);
}

Tensor region_loss(const Tensor& scores, const Tensor& labels, const RegionOptions& o) {
  const auto count = static_cast<std::int64_t>(o.regions.size());
  require(scores.rank() == 5 && labels.rank() == 4 && count > 0 && scores.dim(4) == count,
          "[region_loss] needs scores [N, D, H, W, {}] of {} regions and labels [N, D, H, W]: {}, {}", count, count, scores,
          labels);
  require(!scores.layout() == !labels.layout(), "[region_loss] scores and labels are both distributed or both local: {}, {}",
          scores, labels);
  const auto x = is_half(scores.dtype()) ? cast(scores, DType::float32) : scores;
  Tensor t, counted;  // of the regions; of the cells that are not ignored
  {
    Untaped scope;
    const auto of_class = cast(mpigrad::apply(ops::LabelMask{o.classes, o.overlap.ignored}, {labels}), x.dtype());
    std::vector<Tensor> parts;
    for (const auto& region : o.regions) {
      Tensor part;
      for (const auto label : region) {
        require(label >= 0 && label < o.classes, "[region_loss] a region has the class {} of {}", label, o.classes);
        const auto cells = slice(of_class, 4, label, label + 1);
        part = part ? part + cells : cells;
      }
      require(static_cast<bool>(part), "[region_loss] a region has no class");
      parts.push_back(part);
    }
    t = constant(concatenate(parts, 4));
    require(t.shape() == x.shape(), "[region_loss] labels are for other cells than the scores: {}, {}", labels, scores);
    if (o.overlap.ignored) counted = constant(sum(of_class, {-1}, true));
  }
  auto overlap = o.overlap;
  overlap.background = true;
  const auto p = sigmoid(x);
  Overlap sums{.both = over_cells(p * t, overlap.whole_batch),
               .predicted = over_cells(counted ? p * counted : p, overlap.whole_batch),
               .true_ = {}};
  {
    Untaped scope;
    sums.true_ = constant(over_cells(t, overlap.whole_batch));
  }
  auto entropy = binary_cross_entropy_with_logits(x, t, Reduction::none);
  if (counted) entropy = entropy * counted;
  const auto mean_entropy =
      counted ? sum(entropy) / (std::max(1e-30, mean_weight(labels, o.classes, {.ignore_index = o.overlap.ignored})) *
                                static_cast<double>(count))
              : mean(entropy);
  return (as_share(dice_of(sums, overlap), scores) + mean_entropy) * 0.5;
}

Tensor focal_loss(const Tensor& scores, const Tensor& labels, const FocalOptions& o) {
  require(o.gamma >= 0, "[focal_loss] gamma is not negative, got {}", o.gamma);
  const auto at = compared("focal_loss", scores, labels, o.ignored);
  const auto classes = scores.dim(4);
  require(o.weights.empty() || static_cast<std::int64_t>(o.weights.size()) == classes, "[focal_loss] {} weights for {} classes",
          o.weights.size(), classes);
  const auto all = log_softmax(at.scores);
  CrossEntropyOptions options{.ignore_index = o.ignored, .reduction = Reduction::none};
  if (!o.weights.empty()) {
    UseDevice device(scores.device());
    options.weights = constant(from_vector({classes}, o.weights, all.dtype()));
  }
  const auto losses = negative_log_likelihood(all, labels, options);
  const auto mean_of = [&](const Tensor& x) {
    if (!o.ignored) return mean(x);
    return sum(x) / std::max(1e-30, mean_weight(labels, classes, {.ignore_index = o.ignored}));
  };
  if (o.gamma == 0) return mean_of(losses);
  const auto p = exp(sum(where(at.chosen, all, number(all, 0)), {-1}));
  return mean_of(pow(relu(1 - p), o.gamma) * losses);  // rounding may make 1 - p negative
}

}  // namespace mpigrad::segmentation
