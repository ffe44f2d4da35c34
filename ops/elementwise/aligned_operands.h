#pragma once
// Aligns operands of one elementwise op when some are replicated over ranks on which others vary, such as parameters and
// activations.

#include <optional>
#include <string_view>

#include "ops/layout_rules.h"

namespace mpigrad {

struct AlignedOperands {
  Tensors local;     // this rank's blocks of the replicated operands too; without layouts
  LayoutPtr layout;  // of the result
};
// Empty if no operand needs alignment: none is replicated where others vary, or only constants that broadcast are. Refuses what
// elementwise_layout() refuses.
std::optional<AlignedOperands> align_operands(std::string_view op, Inputs in, Elementwise kind);

// Applies an op whose operands may be replicated over ranks on which others vary.
template <class Op>
Tensor apply_aligned(const Op& op, Elementwise kind, Tensors in) {
  detail::bring_together(Op::traits().name, in);
  auto operands = align_operands(Op::traits().name, in, kind);
  if (!operands) return mpigrad::apply(op, std::move(in));
  int split = 1;  // outputs get room for halos along this dimension
  while (split < operands->layout->global.rank() && operands->layout->axis_of(split) < 0) ++split;
  const HaloRoom room(split < operands->layout->global.rank() ? split : -1);
  return mpigrad::apply(op, std::move(operands->local)).with_layout(operands->layout);
}

}  // namespace mpigrad
