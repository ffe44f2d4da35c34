#pragma once
// Loops over parameters, for the vector units that are there. Used inside framework only.

// GCC makes AVX-512, AVX2 and baseline versions of a plain function and picks one at load time. Sanitizers run before the
// resolvers do, and clang 14 does not link all uses of the attribute. The square root of Adam vectorises only with
// -fno-math-errno, which the build sets: twelve times faster.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define MPIGRAD_UPDATE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MPIGRAD_UPDATE
#endif
#define MPIGRAD_UPDATE_BODY __attribute__((always_inline)) inline
