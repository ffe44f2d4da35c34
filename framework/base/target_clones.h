#pragma once
// Loops for the vector units that are there. Not installed.

// MPIGRAD_CLONES in front of a plain function (no template, not inline) compiles it for AVX-512, AVX2 and the baseline and picks
// one at load time; -O3 alone would be SSE2. Clang 14 does not link all uses of it, and sanitizers run before the resolvers do:
// there the baseline is used. Square roots vectorise only with -fno-math-errno, which the build sets: Adam's is twelve times
// faster.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define MPIGRAD_HAS_CLONES
#define MPIGRAD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MPIGRAD_CLONES
#endif

// The shared body of clones for several types: a template that must vanish into each of them.
#define MPIGRAD_BODY __attribute__((always_inline)) inline
