#pragma once
// Products of small matrices by the tensor cores of a multiprocessor, one warp each.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "framework/tensor/half.h"

namespace mpigrad::cuda {

// c += a b for a [16, 16], b [16, 8] of 16-bit numbers and c [16, 8] of float32; all lanes of a warp call it. PTX's m16n8k16:
// lane 4 g + t holds
//   of a, two neighbouring columns in a register: rows g, g + 8, g, g + 8 of columns 2t, 2t, 2t + 8, 2t + 8;
//   of b, two neighbouring rows of column g: rows 2t and 2t + 8;
//   of c, rows g, g, g + 8, g + 8 of columns 2t, 2t + 1, 2t, 2t + 1.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-fragment-mma-16816-float
template <class T>
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(__CUDACC__)
  static_cast<void>(c), static_cast<void>(a), static_cast<void>(b);
  __trap();  // older GPUs: few_channels_run_here() is false there
#else
  emulation::multiply_add(c, a, b, [](unsigned short bits) { return static_cast<float>(T::from_bits(bits)); });
#endif
}

// The same for TF32 numbers, a [16, 8] and b [8, 8]: of a, rows g, g + 8, g, g + 8 of columns t, t, t + 4, t + 4; of b, rows t
// and t + 4 of column g.
__device__ inline void multiply_add_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(__CUDACC__)
  static_cast<void>(c), static_cast<void>(a), static_cast<void>(b);
  __trap();
#else
  emulation::multiply_add_tf32(c, a, b);
#endif
}
// Rounds to the 10 fraction bits of TF32, ties away from zero.
__device__ inline unsigned tf32_of(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#elif defined(__CUDACC__)
  return static_cast<unsigned>(x);
#else
  unsigned bits;
  std::memcpy(&bits, &x, sizeof bits);
  return x - x == 0 ? (bits + 0x1000U) & ~0x1FFFU : bits;
#endif
}

// Loads four matrices of 8 x 8 16-bit numbers from shared memory, transposed; all lanes of a warp call it. Lane 8 i + r passes
// the address of row r of matrix i, 16 aligned bytes; register i of lane 4 g + t has column g of rows 2t and 2t + 1 of matrix i.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-ldmatrix
__device__ inline void load_transposed(const void* row, unsigned (&to)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
#elif defined(__CUDACC__)
  static_cast<void>(row), static_cast<void>(to);
  __trap();
#else
  emulation::load_transposed(row, to);
#endif
}

// The same without transposition: register i of lane 4 g + t has row g of columns 2t and 2t + 1 of matrix i.
__device__ inline void load_matrices(const void* row, unsigned (&to)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
#elif defined(__CUDACC__)
  static_cast<void>(row), static_cast<void>(to);
  __trap();
#else
  emulation::load_matrices(row, to);
#endif
}

// Starts an asynchronous copy of 16 bytes to shared memory, or writes zeros if `there` is false. The copy is complete after
// wait_for_copies() and a barrier.
__device__ inline void start_copy(void* shared, const void* from, bool there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("{ .reg .u64 p; cvta.to.global.u64 p, %1; cp.async.cg.shared.global [%0], [p], 16, %2; }"
               :
               : "r"(at), "l"(from), "r"(there ? 16 : 0)
               : "memory");
#elif defined(__CUDACC__)
  static_cast<void>(shared), static_cast<void>(from), static_cast<void>(there);
  __trap();
#else
  if (there) std::memcpy(shared, from, 16);
  else std::memset(shared, 0, 16);
#endif
}
__device__ inline void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Packs two 16-bit numbers into one register, the first in its lower half.
template <class T>
__device__ inline unsigned pair_of(T low, T high) {
  return static_cast<unsigned>(low.bits()) | static_cast<unsigned>(high.bits()) << 16;
}

}  // namespace mpigrad::cuda
