#pragma once
// oneDNN's product of bfloat16 matrices, for the rate that a processor reaches.

#include <cstdint>
#include <functional>

namespace mpigrad::bench {

// A call that multiplies two n x n matrices of bfloat16. Empty if oneDNN is absent or has no optimised kernel.
std::function<void()> bare_bfloat16_product(std::int64_t n);

}  // namespace mpigrad::bench
