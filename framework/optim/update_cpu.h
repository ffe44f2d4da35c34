#pragma once
// The update of an optimizer's elements on the CPU. Used inside framework only.

#include "framework/optim/update.h"
#include "framework/tensor/dtype.h"

namespace mpigrad::detail {

// Both functions run on the calling thread, for the rules of framework/optim/rules/rules.h; `dtype` is float32 or float64.

// Updates a segment; also for AverageRule.
template <class Rule>
void update(DType dtype, const UpdateSegment& segment, const RuleOfStep<Rule>& rule);

// Sums of squares of at most a few thousand elements; only for rules with trust ratios. Runs the rule's prepare() first.
template <class Rule>
SquaredNorms measure(DType dtype, const UpdateSegment& segment, const RuleOfStep<Rule>& rule);

}  // namespace mpigrad::detail
