#pragma once
// Elementwise reductions in host memory. Used inside comm only.

#include <cstdint>

#include "comm/transport/transport.h"

namespace mpigrad {

// accumulator[i] = op(accumulator[i], in[i]). A NaN in either operand of max and min stays.
void reduce_into(void* accumulator, const void* in, std::int64_t count, DType type, CombineOp op) noexcept;

}  // namespace mpigrad
