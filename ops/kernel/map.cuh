#pragma once
// Kernels over corresponding elements of contiguous arrays: 16 bytes at a time where the addresses allow it.

#include "framework/cuda/element.cuh"
#include "framework/cuda/launch.cuh"

namespace mpigrad::cuda {

inline bool aligned(const void* pointer, std::uintptr_t bytes) { return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0; }

// y[i] = f(x[i]...). If `packed`, whole packs of V elements are loaded at once, and the last threads compute the remaining
// elements one by one.
template <int V, class F, class R, class... A>
__global__ void map_kernel(F f, std::int64_t n, bool packed, R* y, const A*... x) {
  const std::int64_t packs = (n + V - 1) / V;
  for (std::int64_t p = first_index(); p < packs; p += grid_stride()) {
    const std::int64_t at = p * V;
    if (packed && at + V <= n) {
      const auto apply = [&](const Pack<A, V>&... in) {
        Pack<R, V> result;
#pragma unroll
        for (int i = 0; i < V; ++i) result.of[i] = store<R>(f(load(in.of[i])...));
        return result;
      };
      *reinterpret_cast<Pack<R, V>*>(y + at) = apply(*reinterpret_cast<const Pack<A, V>*>(x + at)...);
    } else {
      for (std::int64_t i = at; i < at + V && i < n; ++i) y[i] = store<R>(f(load(x[i])...));
    }
  }
}

template <class F, class R, class... A>
void map(const F& f, std::int64_t n, Stream stream, const char* name, R* y, const A*... x) {
  if (n == 0) return;
  constexpr std::size_t sizes[] = {sizeof(R), sizeof(A)...};
  constexpr std::size_t widest = [&] {
    std::size_t result = 1;
    for (const auto size : sizes) result = size > result ? size : result;
    return result;
  }();
  constexpr int V = static_cast<int>(16 / widest);
  const bool packed = aligned(y, sizeof(R) * V) && (aligned(x, sizeof(A) * V) && ...);
  launch(name, map_kernel<V, F, R, A...>, blocks_for((n + V - 1) / V), block_threads, stream, f, n, packed, y, x...);
}

}  // namespace mpigrad::cuda
