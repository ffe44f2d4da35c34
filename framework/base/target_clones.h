#pragma once
// Compiles loops for the vector units of several processors. Not installed.

// MPIGRAD_CLONES in front of a plain function (no template, not inline) compiles it for AVX-512, AVX2 and the baseline and picks
// one at load time; plain -O3 would use SSE2. With Clang 14, which does not link all uses of this, and with sanitizers, which run
// before the resolvers, only the baseline is compiled. Square roots vectorise only with -fno-math-errno, which the build sets:
// Adam's is twelve times faster.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define MPIGRAD_HAS_CLONES
#define MPIGRAD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MPIGRAD_CLONES
#endif

// Marks the shared body of clones for several types: a template that must be inlined into each of them.
#define MPIGRAD_BODY __attribute__((always_inline)) inline
