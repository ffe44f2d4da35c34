#pragma once
// Names of the implementation of a float problem: the library's own name of its kernel, or ours. For tests and benchmarks.

#include <cstdint>
#include <string>

#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

bool onednn_present();

// The instruction sets in use: "oneDNN AVX2, own loops AVX-512, OpenBLAS Haswell". ONEDNN_MAX_CPU_ISA limits the first of them,
// OPENBLAS_CORETYPE the last; our own loops use the instructions of the processor on x86, those of the compiler's flags
// elsewhere: "own loops NEON". "oneDNN AVX-512 with AMX" is the set that makes bfloat16 fast; "(not the processor's AMX)" means
// that the processor has it, but that a limit, an old oneDNN or the operating system keeps oneDNN from it.
std::string instruction_sets();

enum class Pass : std::uint8_t { forward, data, weight };

// "brgconv:avx512_core", "jit:avx2", ..., "winograd" or "gathered"
std::string implementation_of(Pass pass, const ConvProblem& p);
// The implementation of a bfloat16 convolution with the processor's own instructions; empty if float32 computes it.
std::string native_implementation_of(Pass pass, const ConvProblem& p);
// "jit:avx512_core", ..., or "separated"; the adjoint is always "separated".
std::string implementation_of(const PoolProblem& p);

// The parts of instruction_sets(); empty without the library.
std::string onednn_instruction_set();
std::string blas_kernels();

}  // namespace mpigrad::cpu
