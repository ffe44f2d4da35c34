#pragma once
// Losses. With Reduction::mean they divide by the *global* count, so that on a distributed batch each rank's value is a partial
// sum. For 16-bit predictions and targets they are computed and returned in float32.

#include <optional>
#include <vector>

#include "framework/engine/op.h"

namespace mpigrad {

enum class Reduction : std::uint8_t { none, mean, sum };

// (prediction - target)^2 and |prediction - target|, for operands of equal shape.
Tensor mse(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor mae(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);

struct HuberOptions {
  double delta = 1;  // positive
  Reduction reduction = Reduction::mean;
};
// d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), d = prediction - target
Tensor huber(const Tensor& prediction, const Tensor& target, const HuberOptions& options = {});

struct CrossEntropyOptions {
  Tensor weights{};  // [C]: a factor for each class, equal on all ranks, with or without a layout; or none
  std::optional<std::int64_t> ignore_index{};  // these labels are excluded from the sum and the mean; may be outside [0, C)
  Reduction reduction = Reduction::mean;       // the mean divides by the sum of the weights of the labels that are not ignored
};
// logits: [..., C], labels: integers [...] in [0, C), others are refused:  -w[label] log softmax(logits)[label]
// Distributed logits may be split along any dimension except the classes, and the labels are split in the same way. A mean with
// weights or ignored labels is then collective: one number, the sum of the weights, is added over ranks whose blocks differ.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});
// The divisor of a mean of cross_entropy(): the sum of the weights of all ranks' labels that are not ignored. Collective for
// distributed labels.
double cross_entropy_weight(const Tensor& labels, std::int64_t classes, const CrossEntropyOptions& options);
// While it is in scope, on this thread: the labels [n, ...] of all micro-batches of a step, of which the losses see one at a
// time. The divisor of a mean with weights or ignored labels is then that of the whole batch, times the micro-batch's part of the
// samples, so that the mean of the micro-batches' losses, weighted by their samples, is that of the whole batch. On all ranks
// alike; scopes may be nested.
class StepLabels {
 public:
  explicit StepLabels(std::vector<Tensor> labels);
  ~StepLabels();
  StepLabels(const StepLabels&) = delete;
  StepLabels& operator=(const StepLabels&) = delete;
  static const std::vector<Tensor>* current();  // of the innermost scope; none outside

 private:
  std::vector<Tensor> labels_;
  const StepLabels* outer_;
};
// The divisor with which a mean divides: cross_entropy_weight(), or that of a scope of StepLabels.
double mean_weight(const Tensor& labels, std::int64_t classes, const CrossEntropyOptions& options);
// cross_entropy() of log-probabilities instead of logits.
Tensor negative_log_likelihood(const Tensor& log_probabilities, const Tensor& labels, const CrossEntropyOptions& options = {});

// -(t log p + (1 - t) log(1 - p)) with p = sigmoid(logits), without overflow
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction = Reduction::mean);
// The same loss of probabilities; logarithms are bounded below by -100.
Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, Reduction reduction = Reduction::mean);

struct KlDivergenceOptions {
  bool log_target = false;                // the target is log-probabilities as well
  Reduction reduction = Reduction::mean;  // the mean divides by the number of samples, the global extent of dimension 0
};
// p (log p - q): the divergence of the distribution with log-probabilities q from the target p, element by element or summed.
// Where p is 0 the term is 0. The mean is PyTorch's "batchmean".
Tensor kl_divergence(const Tensor& log_probabilities, const Tensor& target, const KlDivergenceOptions& options = {});

// <a, b> / (max(|a|, epsilon) max(|b|, epsilon)) along a dimension, which is removed and may be split; a and b broadcast. The
// derivative of |a| at 0 is 0.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int axis = -1, double epsilon = 1e-8);

namespace ops {

// labels [...] -> boolean [..., C]: true at the label's class, false everywhere for `ignored`. Other labels outside [0, C) are
// refused.
struct LabelMask {
  std::int64_t classes = 0;
  std::optional<std::int64_t> ignored{};
  static constexpr OpTraits traits() { return {.name = "label_mask", .differentiable = false}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
};

}  // namespace ops

}  // namespace mpigrad
