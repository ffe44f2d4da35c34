#pragma once
// The update of an optimizer's elements on the CPU. Used inside framework only.

#include "framework/optim/update.h"
#include "framework/tensor/dtype.h"

namespace mpigrad::detail {

// Both work on the calling thread, for the rules of framework/optim/rules/rules.h; `dtype` is float32 or float64.

// For AverageRule, too.
template <class Rule>
void update(DType dtype, const UpdateSegment& segment, const RuleOfStep<Rule>& rule);

// Sums of squares, of some thousand elements at most; rules with trust ratios alone, whose prepare() runs before.
template <class Rule>
SquaredNorms measure(DType dtype, const UpdateSegment& segment, const RuleOfStep<Rule>& rule);

}  // namespace mpigrad::detail
