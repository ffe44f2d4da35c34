#pragma once
// Operands of one elementwise op of which some are the same on ranks among which others vary, as parameters are beside
// activations.

#include <optional>
#include <string_view>

#include "ops/layout_rules.h"

namespace mpigrad {

struct AlignedOperands {
  Tensors local;     // this rank's blocks, of which those are replicated; without layouts
  LayoutPtr layout;  // of the result
};
// Nothing if there are none, or only constants that broadcast. Refuses what elementwise_layout() does.
std::optional<AlignedOperands> align_operands(std::string_view op, Inputs in, Elementwise kind);

}  // namespace mpigrad
