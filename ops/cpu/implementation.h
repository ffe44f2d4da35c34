#pragma once
// What computes a float problem: the library's own name of its kernel, or ours where it has none. For tests and benchmarks.

#include <cstdint>
#include <string>

#include "ops/cpu/kernels.h"

namespace mpigrad::cpu {

bool onednn_present();

enum class Pass : std::uint8_t { forward, data, weight };

// "brgconv:avx512_core", "jit:avx2", ..., or "gathered"
std::string implementation_of(Pass pass, const ConvProblem& p);
// "jit:avx512_core", ..., or "separated"; the adjoint is always "separated".
std::string implementation_of(const PoolProblem& p);

}  // namespace mpigrad::cpu
