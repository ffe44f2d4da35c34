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

}  // namespace mpigrad
