#include "ops/loss/loss.h"

#include <limits>

#include "framework/engine/tape.h"
#include "ops/array/statistics.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

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

Tensor reduced(const Tensor& x, Reduction reduction) {
  return reduction == Reduction::none ? x : reduction == Reduction::sum ? sum(x) : mean(x);
}

// Mixed precision: losses need the range and digits of float32.
Tensor wide(const Tensor& x) { return is_half(x.dtype()) ? cast(x, DType::float32) : x; }

Tensor scalar_like(const Tensor& x, double value) {
  UseDevice device(x.device());
  return constant(full(Shape{}, value, x.dtype()));
}

}  // namespace

Tensor mse(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  require(prediction.shape() == target.shape(), "[mse] shapes differ: prediction {}, target {}", prediction, target);
  return reduced(square(wide(prediction) - wide(target)), reduction);
}

Tensor mae(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  require(prediction.shape() == target.shape(), "[mae] shapes differ: prediction {}, target {}", prediction, target);
  return reduced(abs(wide(prediction) - wide(target)), reduction);
}

Tensor huber(const Tensor& prediction, const Tensor& target, const HuberOptions& options) {
  require(prediction.shape() == target.shape(), "[huber] shapes differ: prediction {}, target {}", prediction, target);
  require(options.delta > 0, "[huber] delta is positive, got {}", options.delta);
  const auto d = wide(prediction) - wide(target), size = abs(d);
  const auto outside = (size - options.delta / 2) * options.delta;
  return reduced(where(size <= options.delta, square(d) * 0.5, outside), options.reduction);
}

Tensor kl_divergence(const Tensor& log_probabilities, const Tensor& target, const KlDivergenceOptions& options) {
  require(log_probabilities.shape() == target.shape() && target.rank() >= 1,
          "[kl_divergence] needs a batch of log-probabilities and a target of its shape: {}, {}", log_probabilities, target);
  const auto q = wide(log_probabilities), t = wide(target);
  // Where p is 0 the logarithm is taken of 1, so that no derivative is 0 times infinity.
  const Tensor none = options.log_target ? t == -std::numeric_limits<double>::infinity() : t == 0;
  const auto log_p = options.log_target ? where(none, 0, t) : log(where(none, 1, t));
  const auto p = options.log_target ? exp(log_p) : t;
  const auto losses = where(none, 0, p * (log_p - where(none, 0, q)));
  if (options.reduction != Reduction::mean) return reduced(losses, options.reduction);
  return sum(losses) / static_cast<double>(global_shape(losses)[0]);
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int axis, double epsilon) {
  const auto x = wide(a), y = wide(b);
  const auto size = [&](const Tensor& z) { return maximum(vector_norm(z, {axis}, 2, true), epsilon); };
  const auto kept = detail::whole(sum(x * y, {axis}, true)) / (size(x) * size(y));
  return squeeze(kept, {axis});
}

namespace {

// A plain tensor is equal on all ranks: with a replicated layout on the labels' grid it broadcasts against split tensors. chosen:
// [..., C].
Tensor class_weights(const Tensor& weights, const Tensor& chosen) {
  const auto classes = chosen.dim(-1);
  require(weights.shape() == Shape{classes} && (!weights.layout() || weights.layout()->varying_axes().empty()),
          "[cross_entropy] one weight for each of {} classes: {}", classes, weights);
  const auto all = constant(wide(weights).without_layout());
  if (!chosen.layout()) return all;
  const auto& layout = *chosen.layout();
  return all.with_layout(std::make_shared<Layout>(
      Layout{layout.grid, all.shape(), std::vector<AxisPlacement>(layout.axes.size(), {Placement::replicated, -1, {}})}));
}

// The weight of each label, 0 if it is ignored, [...]. chosen: true at the label's class, [..., C].
Tensor label_weights(const Tensor& chosen, const CrossEntropyOptions& options, DType dtype) {
  if (!options.weights) return constant(sum(cast(chosen, dtype), {-1}));
  const auto weights = class_weights(options.weights, chosen);
  return constant(sum(where(chosen, weights, scalar_like(weights, 0)), {-1}));
}

// The sum of all ranks' weights.
Tensor total_weight(const Tensor& weight) {
  const auto mine = sum(weight);
  if (!mine.layout() || !mine.layout()->has(Placement::partial)) return mine;
  return mine.layout()->grid->sum_over(mine.layout()->varying_axes(), mine);
}

// The divisor of a micro-batch in a scope of StepLabels.
Tensor weight_of_step(const Tensor& here, std::int64_t classes, const CrossEntropyOptions& options, DType dtype) {
  Untaped scope;
  const auto& step = *StepLabels::current();
  Tensor all;
  std::int64_t samples = 0;
  for (const auto& labels : step) {
    const auto chosen = mpigrad::apply(ops::LabelMask{classes, options.ignore_index}, {labels});
    const auto weight = total_weight(label_weights(chosen, options, dtype));
    all = all ? all + weight : weight;
    samples += global_shape(labels)[0];
  }
  return all * (static_cast<double>(global_shape(here)[0]) / static_cast<double>(samples));
}

}  // namespace

Tensor negative_log_likelihood(const Tensor& log_probabilities, const Tensor& labels, const CrossEntropyOptions& options) {
  const auto log_p = wide(log_probabilities);
  require(log_p.rank() == labels.rank() + 1,
          "[cross_entropy] labels have the dimensions of the scores but the last: scores {}, labels {}", log_p, labels);
  require(!log_p.layout() == !labels.layout(), "[cross_entropy] scores and labels are both distributed or both local: {}, {}",
          log_p, labels);
  require(!log_p.layout() || log_p.layout()->axis_of(log_p.rank() - 1) < 0,
          "[cross_entropy] the classes are split; redistribute the scores first: {}", log_p);
  const auto classes = log_p.dim(-1);
  const auto dtype = log_p.dtype();
  // Selects instead of multiplying: the scores of other classes may be infinite.
  Tensor chosen, weight;  // true at the label's class, [..., C]; the label's weight, 0 if it is ignored, [...]
  const bool weighted = options.ignore_index || options.weights;
  {
    Untaped scope;
    chosen = mpigrad::apply(ops::LabelMask{classes, options.ignore_index}, {labels});
    if (weighted) weight = label_weights(chosen, options, dtype);
    require(!weighted || weight.dtype() == dtype, "[cross_entropy] weights have the type of the scores: {} and {}",
            options.weights, log_p);
  }
  auto losses = -sum(where(chosen, log_p, scalar_like(log_p, 0)), {-1});
  if (options.weights) losses = losses * weight;
  if (options.reduction != Reduction::mean || !weighted) return reduced(losses, options.reduction);
  const Tensor share = sum(losses);
  const Tensor all = StepLabels::current() != nullptr ? weight_of_step(labels, classes, options, dtype) : total_weight(weight);
  return share / maximum(all, scalar_like(all, 1e-30));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  return negative_log_likelihood(log_softmax(wide(logits)), labels, options);
}

double cross_entropy_weight(const Tensor& labels, std::int64_t classes, const CrossEntropyOptions& options) {
  Untaped scope;
  const auto chosen = mpigrad::apply(ops::LabelMask{classes, options.ignore_index}, {labels});
  return total_weight(label_weights(chosen, options, DType::float64)).without_layout().item();
}

namespace {
thread_local const StepLabels* innermost_labels = nullptr;
}  // namespace

StepLabels::StepLabels(std::vector<Tensor> labels) : labels_(std::move(labels)), outer_(innermost_labels) {
  innermost_labels = this;
}
StepLabels::~StepLabels() { innermost_labels = outer_; }
const std::vector<Tensor>* StepLabels::current() { return innermost_labels == nullptr ? nullptr : &innermost_labels->labels_; }

double mean_weight(const Tensor& labels, std::int64_t classes, const CrossEntropyOptions& options) {
  if (StepLabels::current() == nullptr) return cross_entropy_weight(labels, classes, options);
  return weight_of_step(labels, classes, options, DType::float64).without_layout().item();
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction) {
  require(logits.shape() == target.shape(), "[binary_cross_entropy] shapes differ: logits {}, target {}", logits, target);
  const auto x = wide(logits);
  return reduced(softplus(x) - x * wide(target), reduction);
}

Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, Reduction reduction) {
  require(probability.shape() == target.shape(), "[binary_cross_entropy] shapes differ: probability {}, target {}", probability,
          target);
  const auto p = wide(probability), t = wide(target);
  // The inner bound, below exp(-100) and above zero in both types, keeps the derivative from being 0 / 0 at p = 0.
  const auto bounded_log = [](const Tensor& q) { return clamp(log(clamp(q, 1.5e-45, 1)), -100, 0); };
  return reduced(-(t * bounded_log(p) + (1 - t) * bounded_log(1 - p)), reduction);
}

}  // namespace mpigrad
