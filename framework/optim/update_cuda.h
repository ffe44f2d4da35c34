#pragma once
// Optimizers on GPUs, without a vendor's header.

#include <span>

#include "framework/optim/update.h"
#include "framework/tensor/dtype.h"

namespace mpigrad::cuda {

// One pass over all segments of one type, float32 or float64. While a step is captured (framework/cuda/graph.h), rates of
// segments are factors of the learning rate, which is read on the GPU together with the corrections of the rule.

// For the rules of framework/optim/rules/rules.h and AverageRule.
template <class Rule>
void update(DType dtype, std::span<const UpdateSegment> segments, const RuleOfStep<Rule>& rule);
// The first of two passes of a rule with trust ratios: puts sums of squares of each segment's weights and of its step into
// `squares`, two doubles for each on the GPU; the rule's prepare() runs before. The second pass, update(), reads them as
// `rule.squares`. The host waits for neither.
template <class Rule>
void measure(DType dtype, std::span<const UpdateSegment> segments, const RuleOfStep<Rule>& rule, double* squares);
// Sum of squares of the segments' gradients, in double; the host waits for it, which is counted.
double squared_norm(DType dtype, std::span<const UpdateSegment> segments);
// *factor = scale min(1, max_norm / (|scale| norm + 1e-6)) with the norm of all gradients, float32 (`singles`) and float64
// (`doubles`); `factor` is on the GPU and the host does not wait.
void clip_factor(std::span<const UpdateSegment> singles, std::span<const UpdateSegment> doubles, double scale, double max_norm,
                 double* factor);

}  // namespace mpigrad::cuda
