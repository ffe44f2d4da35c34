#pragma once
// Losses. With Reduction::mean they divide by the *global* count, so that on a distributed batch each rank's value is a partial
// sum. Of 16-bit predictions and targets they are computed, and given, in float32.

#include <optional>

#include "framework/engine/op.h"

namespace mpigrad {

enum class Reduction : std::uint8_t { none, mean, sum };

Tensor mse(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor mae(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);

struct CrossEntropyOptions {
  Tensor weights{};  // [C]: a factor for each class, the same on all ranks, with a layout or without; or none
  std::optional<std::int64_t> ignore_index{};  // labels that count neither in the sum nor in the mean; may be outside [0, C)
  Reduction reduction = Reduction::mean;       // the mean divides by the sum of the weights of the labels that count
};
// logits: [..., C], labels: integers [...] in [0, C), others are refused:  -w[label] log softmax(logits)[label]
// Of distributed logits any dimension but the classes may be split, and the labels with it. A mean with weights or ignored labels
// is then collective: one number, the sum of the weights, is added over the ranks that differ.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});
// The number by which a mean of cross_entropy() divides: the sum of the weights of all ranks' labels that count. Collective for
// distributed labels.
double cross_entropy_weight(const Tensor& labels, std::int64_t classes, const CrossEntropyOptions& options);
// The same of log-probabilities.
Tensor negative_log_likelihood(const Tensor& log_probabilities, const Tensor& labels, const CrossEntropyOptions& options = {});

// -(t log p + (1 - t) log(1 - p)) with p = sigmoid(logits), without overflow
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction = Reduction::mean);
// The same of probabilities; logarithms are bounded below by -100.
Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, Reduction reduction = Reduction::mean);

namespace ops {

// labels [...] -> boolean [..., C]: whether a class is the label's; nowhere for `ignored`. Other labels outside [0, C) are
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
