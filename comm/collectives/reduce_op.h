#pragma once
// Reductions over ranks besides the plain sum, and who gets the cotangent where ranks tie: comm/collectives/reductions.h.

#include <cstdint>
#include <string_view>

namespace mpigrad {

enum class ReduceOp : std::uint8_t { sum, avg, max, min, prod, logical_and, logical_or };
enum class Ties : std::uint8_t { split, first };

std::string_view name_of(ReduceOp op);

}  // namespace mpigrad
