#pragma once
// Reductions over ranks besides the plain sum, and which ranks get the cotangent of a tie: comm/collectives/reductions.h.

#include <cstdint>
#include <string_view>

#include "comm/transport/collective.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

enum class ReduceOp : std::uint8_t { sum, avg, max, min, prod, logical_and, logical_or, band, bor, bxor };
enum class Ties : std::uint8_t { split, first };

// "sum", "avg", "max", ...: the name in this list.
std::string_view name_of(ReduceOp op);
// The transport's reduction; for an average the sum.
CombineOp plain(ReduceOp op);
// True if prefix reductions by op exist.
bool has_prefixes(ReduceOp op);
// a and b combined by op, differentiably. Error: an op that has no prefix reductions.
Tensor combined(const Tensor& a, const Tensor& b, CombineOp op);
// Throws an Error, in the name of `call`, if x's type does not have the operation.
void require_fits(std::string_view call, const Tensor& x, ReduceOp op);

}  // namespace mpigrad
