#pragma once
// Reductions over the threads of a block, always in the same order.

namespace mpigrad::cuda {

constexpr int warp = 32;
constexpr int few_terms = 16;  // sums of at most this many terms are added by one thread

// Reduces over the lanes of a warp; lane 0 has the result. `fold` is commutative except for NaN and rounding.
template <class A, class Fold>
__device__ inline A fold_warp(A value, const Fold& fold) {
  for (int step = warp / 2; step > 0; step /= 2) value = fold(value, static_cast<A>(__shfl_down_sync(0xffffffffU, value, step)));
  return value;
}

// Reduces over a block of whole warps along x, at most 32 warps; all threads have the result. `shared` holds 33 values.
template <class A, class Fold>
__device__ inline A fold_block(A value, const A& start, A* shared, const Fold& fold) {
  const int lane = static_cast<int>(threadIdx.x) % warp, of = static_cast<int>(threadIdx.x) / warp;
  const int warps = static_cast<int>(blockDim.x) / warp;
  value = fold_warp(value, fold);
  __syncthreads();  // an earlier result may still be read
  if (lane == 0) shared[of] = value;
  __syncthreads();
  if (of == 0) {
    value = fold_warp(lane < warps ? shared[lane] : start, fold);
    if (lane == 0) shared[warp] = value;
  }
  __syncthreads();
  return shared[warp];
}

struct AddFold {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
struct MaxFold {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a < b || b != b ? b : a;
  }
};
struct MinFold {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return b < a || b != b ? b : a;
  }
};

}  // namespace mpigrad::cuda
