// Average pooling. A thread computes V neighbouring channels of one output (in the adjoint of one input: it gathers, so that
// nothing is added atomically and results are the same in every run).

#include "ops/pool/windows.cuh"

namespace mpigrad::cuda {
namespace {

// Passed by value: through a reference, the elements would be loaded one by one.
template <class T, int V>
__device__ inline void add_pack(Pack<T, V> x, Compute<T> (&sum)[V]) {
#pragma unroll
  for (int c = 0; c < V; ++c) sum[c] += load(x.of[c]);
}
template <class T, int V>
__device__ inline Pack<T, V> scaled(Compute<T> scale, const Compute<T> (&sum)[V]) {
  Pack<T, V> result;
#pragma unroll
  for (int c = 0; c < V; ++c) result.of[c] = store<T>(scale * sum[c]);
  return result;
}

template <class Form, class T, int V>
__global__ void avg_forward_kernel(Windows p, Compute<T> scale, const Pack<T, V>* x, Pack<T, V>* y) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place o = place_of(p, row, item);
    Compute<T> sum[V] = {};
    for_taps<Form>(p, o, [&](int, std::int64_t pixel) { add_pack(x[pixel * p.packs.divisor() + o.pack], sum); });
    y[row * p.items + item] = scaled<T>(scale, sum);
  });
}

template <class Form, class T, int V>
__global__ void avg_adjoint_kernel(Windows p, Compute<T> scale, const Pack<T, V>* gy, Pack<T, V>* gx) {
  for_rows(p.rows, p.items, [&](std::int64_t row, unsigned item) {
    const Place i = place_of(p, row, item);
    Compute<T> sum[V] = {};
    for_outputs<Form>(p, i, [&](int, std::int64_t pixel) { add_pack(gy[pixel * p.packs.divisor() + i.pack], sum); });
    gx[row * p.items + item] = scaled<T>(scale, sum);
  });
}

}  // namespace

template <class T>
void avg_pool_forward(const PoolProblem& p, const T* x, T* y, void* stream, PoolKernels wanted) {
  const auto run = [&](const Windows& w, const RowGrid& g, auto v, auto form) {
    constexpr int V = decltype(v)::value;
    launch("avg_pool", avg_forward_kernel<decltype(form), T, V>, g.grid, g.block, stream, w, mean_scale<T>(p), packs<V>(x),
           packs<V>(y));
  };
  over_windows<T>(p, p.out, wanted, run, x, y);
}
template <class T>
void avg_pool_adjoint(const PoolProblem& p, const T* gy, T* gx, void* stream, PoolKernels wanted) {
  const auto run = [&](const Windows& w, const RowGrid& g, auto v, auto form) {
    constexpr int V = decltype(v)::value;
    launch("avg_pool_adjoint", avg_adjoint_kernel<decltype(form), T, V>, g.grid, g.block, stream, w, mean_scale<T>(p),
           packs<V>(gy), packs<V>(gx));
  };
  over_windows<T>(p, p.in, wanted, run, gy, gx);
}

#define MPIGRAD_MAKE(T)                                                                 \
  template void avg_pool_forward(const PoolProblem&, const T*, T*, void*, PoolKernels); \
  template void avg_pool_adjoint(const PoolProblem&, const T*, T*, void*, PoolKernels);
MPIGRAD_MAKE(float)
MPIGRAD_MAKE(double)
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(Float16)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cuda
