#include "ops/loss.h"

#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/views.h"

namespace mpigrad {
namespace ops {

Types LabelMask::infer(Inputs in) const {
  require(!is_floating(in[0].dtype()), "[cross_entropy] labels are integers: {}", in[0]);
  Shape shape = in[0].shape();
  shape.push_back(classes);
  return {{shape, DType::boolean}};
}
LayoutPtr LabelMask::layout(Inputs in) const { return OneHot{.classes = classes}.layout(in); }

}  // namespace ops

namespace {

Tensor reduced(const Tensor& x, Reduce reduce) { return reduce == Reduce::none ? x : reduce == Reduce::sum ? sum(x) : mean(x); }

// Their bounds against 0 / 0 need the range of float32.
void require_wide(const char* op, const Tensor& x) {
  require(!is_half(x.dtype()), "[{}] has no {} form: cast to float32 first: {}", op, name_of(x.dtype()), x);
}

Tensor scalar_like(const Tensor& x, double value) {
  UseDevice device(x.device());
  return constant(full(Shape{}, value, x.dtype()));
}

}  // namespace

Tensor mse(const Tensor& prediction, const Tensor& target, Reduce reduce) {
  require(prediction.shape() == target.shape(), "[mse] shapes differ: prediction {}, target {}", prediction, target);
  return reduced(square(prediction - target), reduce);
}

Tensor mae(const Tensor& prediction, const Tensor& target, Reduce reduce) {
  require(prediction.shape() == target.shape(), "[mae] shapes differ: prediction {}, target {}", prediction, target);
  return reduced(abs(prediction - target), reduce);
}

namespace {

// A plain tensor is the same on all ranks: as one of the labels' grid, it broadcasts against what is split.
Tensor class_weights(const Tensor& weights, const Tensor& log_p) {
  const auto classes = log_p.dim(-1);
  require(weights.shape() == Shape{classes} && (!weights.layout() || weights.layout()->varying_axes().empty()),
          "[cross_entropy] one weight for each of {} classes: {}", classes, weights);
  require(weights.dtype() == log_p.dtype(), "[cross_entropy] weights have the type of the scores: {} and {}", weights, log_p);
  const auto all = constant(weights.without_layout());
  if (!log_p.layout()) return all;
  const auto& layout = *log_p.layout();
  return all.with_layout(std::make_shared<Layout>(
      Layout{layout.grid, all.shape(), std::vector<AxisPlacement>(layout.axes.size(), {Placement::same, -1, {}})}));
}

// The sum of all ranks' weights.
Tensor total_weight(const Tensor& weight) {
  const auto mine = sum(weight);
  if (!mine.layout() || !mine.layout()->has(Placement::share)) return mine;
  return mine.layout()->grid->sum_over(mine.layout()->varying_axes(), mine);
}

}  // namespace

Tensor negative_log_likelihood(const Tensor& log_p, const Tensor& labels, const CrossEntropyOptions& options) {
  require(log_p.rank() == labels.rank() + 1,
          "[cross_entropy] labels have the dimensions of the scores but the last: scores {}, labels {}", log_p, labels);
  require_wide("cross_entropy", log_p);
  require(!log_p.layout() == !labels.layout(), "[cross_entropy] scores and labels are both distributed or both local: {}, {}",
          log_p, labels);
  require(!log_p.layout() || log_p.layout()->axis_of(log_p.rank() - 1) < 0,
          "[cross_entropy] the classes are split; redistribute the scores first: {}", log_p);
  const auto classes = log_p.dim(-1);
  const auto dtype = log_p.dtype();
  // Selections, not products: the scores of other classes may be infinite.
  Tensor chosen, weight;  // whether a class is the label's, [..., C];  the label's weight, 0 if it is ignored, [...]
  const bool weighted = options.ignore_index || options.weights;
  {
    Untaped scope;
    chosen = mpigrad::apply(ops::LabelMask{classes, options.ignore_index}, {labels});
    if (options.weights)
      weight = constant(sum(where(chosen, class_weights(options.weights, log_p), scalar_like(log_p, 0)), {-1}));
    else if (weighted) weight = constant(sum(cast(chosen, dtype), {-1}));
  }
  auto losses = -sum(where(chosen, log_p, scalar_like(log_p, 0)), {-1});
  if (options.weights) losses = losses * weight;
  if (options.reduce != Reduce::mean || !weighted) return reduced(losses, options.reduce);
  const Tensor share = sum(losses), all = total_weight(weight);
  return share / maximum(all, scalar_like(all, 1e-30));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  return negative_log_likelihood(log_softmax(logits), labels, options);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduce reduce) {
  require(logits.shape() == target.shape(), "[binary_cross_entropy] shapes differ: logits {}, target {}", logits, target);
  return reduced(softplus(logits) - logits * target, reduce);
}

Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, Reduce reduce) {
  require(probability.shape() == target.shape(), "[binary_cross_entropy] shapes differ: probability {}, target {}", probability,
          target);
  require_wide("binary_cross_entropy", probability);
  // The inner bound, below exp(-100) and above zero in both types, keeps the derivative from being 0 / 0 at p = 0.
  const auto bounded_log = [](const Tensor& p) { return clamp(log(clamp(p, 1.5e-45, 1)), -100, 0); };
  return reduced(-(target * bounded_log(probability) + (1 - target) * bounded_log(1 - probability)), reduce);
}

}  // namespace mpigrad
