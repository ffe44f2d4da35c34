#pragma once
// CUDA's language for an ordinary C++ compiler: the part that this project's kernels use, and launches.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/emulation/include/cuda_runtime_api.h"
#include "tests/emulation/kernel.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
// All threads of a block run on the thread that launches it, one block after the other.
#define __shared__ static thread_local

// ---- indices of a thread

extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

// ---- launches

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* configuration, void (*kernel)(P...), A&&... arguments) {
  static_assert((sizeof(P) + ... + 0) <= 4096, "a kernel has 4096 bytes of arguments");
  static_assert((std::is_trivially_copyable_v<P> && ...), "arguments travel to the GPU as bytes");
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
  };
  const auto call = std::make_shared<const Call>(Call{kernel, std::tuple<P...>(std::forward<A>(arguments)...)});
  mpigrad::emulation::KernelCall launch{[](const void* data) {
                                          const auto& one = *static_cast<const Call*>(data);
                                          std::apply(one.kernel, one.arguments);
                                        },
                                        call,
                                        {}};
  [[maybe_unused]] const auto note = [&]([[maybe_unused]] const auto& argument) {
    if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(argument)>>) launch.pointers.push_back(argument);
  };
  std::apply([&](const auto&... each) { (note(each), ...); }, call->arguments);
  return mpigrad::emulation::launch(*configuration, std::move(launch));
}

// ---- synchronisation

inline void __syncthreads() { mpigrad::emulation::synchronise_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffU) { mpigrad::emulation::exchange(mask, 0, 0, -1); }
inline void __threadfence() {}

// ---- exchange between the lanes of a warp, for the types of the toolkit

namespace mpigrad::emulation {
template <class T>
T shuffle(unsigned mask, T value, int source) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, 1, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
// The lane at distance `step`, or this lane if that is outside the group of `width` lanes.
inline int lane_in_group(int source, int width) {
  const int own = lane();
  return source >= own / width * width && source < (own / width + 1) * width ? source : own;
}
}  // namespace mpigrad::emulation

#define MPIGRAD_EMULATE_SHUFFLES(T)                                                                                       \
  inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {                                              \
    return mpigrad::emulation::shuffle(mask, value, mpigrad::emulation::lane() / width * width + (source & (width - 1))); \
  }                                                                                                                       \
  inline T __shfl_up_sync(unsigned mask, T value, unsigned step, int width = 32) {                                        \
    const int source = mpigrad::emulation::lane() - static_cast<int>(step);                                               \
    return mpigrad::emulation::shuffle(mask, value, mpigrad::emulation::lane_in_group(source, width));                    \
  }                                                                                                                       \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned step, int width = 32) {                                      \
    const int source = mpigrad::emulation::lane() + static_cast<int>(step);                                               \
    return mpigrad::emulation::shuffle(mask, value, mpigrad::emulation::lane_in_group(source, width));                    \
  }                                                                                                                       \
  inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {                                            \
    const int source = mpigrad::emulation::lane() ^ bits;                                                                 \
    return mpigrad::emulation::shuffle(mask, value, mpigrad::emulation::lane_in_group(source, width));                    \
  }
MPIGRAD_EMULATE_SHUFFLES(int)
MPIGRAD_EMULATE_SHUFFLES(unsigned)
MPIGRAD_EMULATE_SHUFFLES(long)
MPIGRAD_EMULATE_SHUFFLES(unsigned long)
MPIGRAD_EMULATE_SHUFFLES(long long)
MPIGRAD_EMULATE_SHUFFLES(unsigned long long)
MPIGRAD_EMULATE_SHUFFLES(float)
MPIGRAD_EMULATE_SHUFFLES(double)
#undef MPIGRAD_EMULATE_SHUFFLES

// ---- matrix products by a warp, with the element order of mma.sync.m16n8k16 (ops/conv/mma.cuh)

namespace mpigrad::emulation {
template <class F>
void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], const F& number) {
  const auto of_two = [](unsigned low, unsigned high) { return std::uint64_t{low} | std::uint64_t{high} << 32; };
  std::uint64_t all_a[2][32], all_b[32];
  gather(0xffffffffU, of_two(a[0], a[1]), 2, all_a[0]);
  gather(0xffffffffU, of_two(a[2], a[3]), 3, all_a[1]);
  gather(0xffffffffU, of_two(b[0], b[1]), 4, all_b);
  const auto half = [&](std::uint64_t bits, int place) { return number(static_cast<unsigned short>(bits >> 16 * place)); };
  const int g = lane() / 4, t = lane() % 4;
  for (int k = 0; k < 16; ++k)
    for (int i = 0; i < 4; ++i) {
      const int row = g + i / 2 * 8, column = 2 * t + i % 2, of = k % 8 / 2;
      c[i] += half(all_a[k / 8][row % 8 * 4 + of], row / 8 * 2 + k % 2) * half(all_b[column * 4 + of], k / 8 * 2 + k % 2);
    }
}
// The same for m16n8k8, with 32-bit elements.
inline void multiply_add_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const auto of_two = [](unsigned low, unsigned high) { return std::uint64_t{low} | std::uint64_t{high} << 32; };
  std::uint64_t all_a[2][32], all_b[32];
  gather(0xffffffffU, of_two(a[0], a[1]), 2, all_a[0]);
  gather(0xffffffffU, of_two(a[2], a[3]), 3, all_a[1]);
  gather(0xffffffffU, of_two(b[0], b[1]), 4, all_b);
  const auto number = [](std::uint64_t bits, int place) {
    const auto own = static_cast<unsigned>(bits >> 32 * place);
    float value;
    std::memcpy(&value, &own, sizeof value);
    return value;
  };
  const int g = lane() / 4, t = lane() % 4;
  for (int k = 0; k < 8; ++k)
    for (int i = 0; i < 4; ++i) {
      const int row = g + i / 2 * 8, column = 2 * t + i % 2;
      c[i] += number(all_a[k / 4][row % 8 * 4 + k % 4], row / 8) * number(all_b[column * 4 + k % 4], k / 4);
    }
}
// ldmatrix: lane 8 i + r holds the address of row r of matrix i.
inline void load_matrices(const void* row, unsigned (&to)[4], bool transposed = false) {
  std::uint64_t rows[32];
  gather(0xffffffffU, reinterpret_cast<std::uint64_t>(row), 5, rows);
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const auto number = [&](int k) {
      return unsigned{reinterpret_cast<const unsigned short*>(rows[8 * i + (transposed ? k : g)])[transposed ? g : k]};
    };
    to[i] = number(2 * t) | number(2 * t + 1) << 16;
  }
  exchange(0xffffffffU, 0, 6, -1);  // no lane writes there before all have read
}
inline void load_transposed(const void* row, unsigned (&to)[4]) { load_matrices(row, to, true); }
}  // namespace mpigrad::emulation

// ---- atomic operations; kernels of several host threads run concurrently

namespace mpigrad::emulation {
template <class T, class F>
T atomically(T* at, const F& f) {
  T old, wanted;
  __atomic_load(at, &old, __ATOMIC_RELAXED);
  do wanted = f(old);
  while (!__atomic_compare_exchange(at, &old, &wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
}  // namespace mpigrad::emulation
#define MPIGRAD_EMULATE_ATOMICS(T)                                                                 \
  inline T atomicAdd(T* at, T value) {                                                             \
    return mpigrad::emulation::atomically(at, [&](T old) { return static_cast<T>(old + value); }); \
  }
MPIGRAD_EMULATE_ATOMICS(int)
MPIGRAD_EMULATE_ATOMICS(unsigned)
MPIGRAD_EMULATE_ATOMICS(unsigned long long)
MPIGRAD_EMULATE_ATOMICS(float)
MPIGRAD_EMULATE_ATOMICS(double)
#undef MPIGRAD_EMULATE_ATOMICS

// ---- arithmetic; min and max of a number and a NaN give the number

#define MPIGRAD_EMULATE_EXTREMA(T, least, largest) \
  inline T min(T a, T b) { return least; }         \
  inline T max(T a, T b) { return largest; }
MPIGRAD_EMULATE_EXTREMA(int, a < b ? a : b, a < b ? b : a)
MPIGRAD_EMULATE_EXTREMA(unsigned, a < b ? a : b, a < b ? b : a)
MPIGRAD_EMULATE_EXTREMA(long, a < b ? a : b, a < b ? b : a)
MPIGRAD_EMULATE_EXTREMA(unsigned long, a < b ? a : b, a < b ? b : a)
MPIGRAD_EMULATE_EXTREMA(long long, a < b ? a : b, a < b ? b : a)
MPIGRAD_EMULATE_EXTREMA(unsigned long long, a < b ? a : b, a < b ? b : a)
MPIGRAD_EMULATE_EXTREMA(float, std::fmin(a, b), std::fmax(a, b))
MPIGRAD_EMULATE_EXTREMA(double, std::fmin(a, b), std::fmax(a, b))
#undef MPIGRAD_EMULATE_EXTREMA

inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
