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

Tensor negative_log_likelihood(const Tensor& log_p, const Tensor& labels, const CrossEntropyOptions& options) {
  require(log_p.rank() == labels.rank() + 1,
          "[cross_entropy] labels have the dimensions of the scores but the last: scores {}, labels {}", log_p, labels);
  require_wide("cross_entropy", log_p);
  const auto classes = log_p.dim(-1);
  const auto dtype = log_p.dtype();
  // Selections, not products: the scores of other classes may be infinite.
  Tensor chosen, weight;  // whether a class is the label's, [..., C];  the label's weight, 0 if it is ignored, [...]
  const bool weighted = options.ignore_index || options.weights;
  {
    Untaped scope;
    chosen = mpigrad::apply(ops::LabelMask{classes, options.ignore_index}, {labels});
    if (options.weights) {
      require(options.weights.shape() == Shape{classes}, "[cross_entropy] one weight for each of {} classes: {}", classes,
              options.weights);
      weight = constant(sum(where(chosen, constant(options.weights), scalar_like(log_p, 0)), {-1}));
    } else if (weighted) {
      weight = constant(sum(cast(chosen, dtype), {-1}));
    }
  }
  auto losses = -sum(where(chosen, log_p, scalar_like(log_p, 0)), {-1});
  if (options.weights) losses = losses * weight;
  if (options.reduce != Reduce::mean || !weighted) return reduced(losses, options.reduce);
  require(!log_p.layout(),
          "[cross_entropy] the sum of weights of a distributed batch needs communication; use Reduce::sum and divide by it: {}",
          log_p);
  return sum(losses) / maximum(sum(weight), scalar_like(weight, 1e-30));
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
