#pragma once
// Elementwise reductions in host memory.

#include <cstdint>

#include "comm/transport.h"

namespace mpigrad::threads {

// accumulator[i] = op(accumulator[i], in[i]). A NaN in either operand of max and min stays.
void reduce_into(void* accumulator, const void* in, std::int64_t count, DType type, Reduction op) noexcept;

}  // namespace mpigrad::threads
