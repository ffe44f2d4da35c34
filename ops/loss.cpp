#include "ops/loss.h"

#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/views.h"

namespace mpigrad {
namespace {

Tensor reduced(const Tensor& x, Reduce reduce) { return reduce == Reduce::none ? x : reduce == Reduce::sum ? sum(x) : mean(x); }

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
  const auto classes = log_p.dim(-1);
  const auto dtype = log_p.dtype();
  Tensor chosen;  // weight of each label's class at its place, 0 elsewhere
  {
    Untaped scope;
    chosen = one_hot(labels, classes, dtype);
    if (options.ignore_index) {
      UseDevice device(labels.device());
      const auto ignored = constant(full(Shape{}, static_cast<double>(*options.ignore_index), labels.dtype()));
      chosen = chosen * cast(unsqueeze(not_equal(labels, ignored), -1), dtype);
    }
    if (options.weights) {
      require(options.weights.shape() == Shape{classes}, "[cross_entropy] one weight for each of {} classes: {}", classes,
              options.weights);
      chosen = chosen * options.weights;
    }
    chosen = constant(chosen);
  }
  const auto losses = -sum(chosen * log_p, {-1});
  if (options.reduce != Reduce::mean || (!options.ignore_index && !options.weights)) return reduced(losses, options.reduce);
  require(!log_p.layout(),
          "[cross_entropy] the sum of weights of a distributed batch needs communication; use Reduce::sum and divide by it: {}",
          log_p);
  return sum(losses) / maximum(sum(chosen), scalar_like(chosen, 1e-30));
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
  // The inner bound, below exp(-100) and above zero in both types, keeps the derivative from being 0 / 0 at p = 0.
  const auto bounded_log = [](const Tensor& p) { return clamp(log(clamp(p, 1.5e-45, 1)), -100, 0); };
  return reduced(-(target * bounded_log(probability) + (1 - target) * bounded_log(1 - probability)), reduce);
}

}  // namespace mpigrad
