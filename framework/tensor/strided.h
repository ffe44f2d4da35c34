#pragma once
// Index arithmetic of CUDA kernels that read or write several arrays of one shape with different strides. Except for the
// functions that kernels call it is plain host code, which is tested without a GPU.

#include <array>
#include <cstdint>

#include "framework/base/host_device.h"

namespace mpigrad {

// Division of 0 <= n < 2^63 by a divisor that is known in advance: a product and a shift, because GPUs have no integer division.
// (T. Granlund and P. Montgomery, "Division by invariant integers using multiplication", 1994, figure 4.1.)
class FastDivide {
 public:
  FastDivide() = default;
  // 0, the extent of an array without elements, counts as 1: nothing is divided by it.
  explicit FastDivide(std::int64_t divisor) : divisor_(divisor > 0 ? static_cast<std::uint64_t>(divisor) : 1) {
    while (shift_ < 63 && (std::uint64_t{1} << shift_) < divisor_) ++shift_;
    __extension__ using Wide = unsigned __int128;
    const std::uint64_t rest = (std::uint64_t{1} << shift_) - divisor_;
    magic_ = static_cast<std::uint64_t>((static_cast<Wide>(rest) << 64) / divisor_) + 1;
  }
  MPIGRAD_HOST_DEVICE std::int64_t quotient(std::int64_t n) const {
    const auto value = static_cast<std::uint64_t>(n);
#ifdef __CUDA_ARCH__
    const std::uint64_t high = __umul64hi(value, magic_);
#else
    __extension__ using Wide = unsigned __int128;
    const auto high = static_cast<std::uint64_t>((static_cast<Wide>(value) * magic_) >> 64);
#endif
    return static_cast<std::int64_t>((high + value) >> shift_);
  }
  MPIGRAD_HOST_DEVICE std::int64_t divisor() const { return static_cast<std::int64_t>(divisor_); }

 private:
  std::uint64_t magic_ = 1, divisor_ = 1;
  std::uint32_t shift_ = 0;
};

// N arrays that are walked together in row-major order of `extents`. Strides are in elements; 0 repeats, negative ones run
// backwards.
template <int N>
struct StridedArrays {
  static constexpr int max_rank = 8;
  int rank = 0;
  std::array<std::int64_t, max_rank> extents{};
  std::array<std::array<std::int64_t, max_rank>, N> strides{};

  void add(std::int64_t extent, const std::array<std::int64_t, N>& steps) {
    const auto d = static_cast<std::size_t>(rank++);
    extents[d] = extent;
    for (std::size_t i = 0; i < N; ++i) strides[i][d] = steps[i];
  }
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (int d = 0; d < rank; ++d) product *= extents[static_cast<std::size_t>(d)];
    return product;
  }
  // The same walk with as few dimensions as possible: merges neighbouring dimensions whose strides are compatible in all arrays.
  StridedArrays collapsed() const {
    StridedArrays result;
    for (int d = 0; d < rank; ++d) {
      const auto from = static_cast<std::size_t>(d);
      if (extents[from] == 1) continue;
      std::array<std::int64_t, N> steps{};
      for (std::size_t i = 0; i < N; ++i) steps[i] = strides[i][from];
      bool even = result.rank > 0;
      const auto last = static_cast<std::size_t>(result.rank > 0 ? result.rank - 1 : 0);
      for (std::size_t i = 0; i < N && even; ++i) even = result.strides[i][last] == steps[i] * extents[from];
      if (!even) {
        result.add(extents[from], steps);
        continue;
      }
      result.extents[last] *= extents[from];
      for (std::size_t i = 0; i < N; ++i) result.strides[i][last] = steps[i];
    }
    return result;
  }
  // How many elements can be moved as one, up to `most` (a power of 2): all arrays have stride 1 in the last dimension, and its
  // extent and all other strides are multiples of the result.
  std::int64_t widest(std::int64_t most) const {
    if (rank == 0) return 1;
    const auto last = static_cast<std::size_t>(rank - 1);
    const auto divides = [&](std::int64_t width) {
      if (extents[last] % width != 0) return false;
      for (std::size_t i = 0; i < N; ++i) {
        if (strides[i][last] != 1) return false;
        for (std::size_t d = 0; d < last; ++d)
          if (strides[i][d] % width != 0) return false;
      }
      return true;
    };
    std::int64_t width = 1;
    while (width * 2 <= most && divides(width * 2)) width *= 2;
    return width;
  }
  // The walk over elements that consist of `width` elements of this one.
  StridedArrays widened(std::int64_t width) const {
    StridedArrays result = *this;
    if (width == 1) return result;
    const auto last = static_cast<std::size_t>(rank - 1);
    result.extents[last] /= width;
    for (auto& of_array : result.strides)
      for (std::size_t d = 0; d < last; ++d) of_array[d] /= width;
    return result;
  }
};

// StridedArrays as an argument of kernels.
template <int N>
class StridedWalk {
 public:
  StridedWalk() = default;
  explicit StridedWalk(const StridedArrays<N>& arrays) : rank_(arrays.rank) {
    for (int d = 0; d < rank_; ++d) {
      extents_[d] = FastDivide(arrays.extents[static_cast<std::size_t>(d)]);
      for (int i = 0; i < N; ++i) strides_[i][d] = arrays.strides[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)];
    }
  }
  // The offset of the element with row-major index `index` in each array.
  MPIGRAD_HOST_DEVICE void offsets(std::int64_t index, std::int64_t (&result)[N]) const {
    for (int i = 0; i < N; ++i) result[i] = 0;
    for (int d = rank_ - 1; d > 0; --d) {
      const std::int64_t rest = extents_[d].quotient(index), at = index - rest * extents_[d].divisor();
      for (int i = 0; i < N; ++i) result[i] += at * strides_[i][d];
      index = rest;
    }
    if (rank_ > 0)
      for (int i = 0; i < N; ++i) result[i] += index * strides_[i][0];
  }
  MPIGRAD_HOST_DEVICE std::int64_t offset(std::int64_t index) const {
    std::int64_t result[N];
    offsets(index, result);
    return result[0];
  }

 private:
  int rank_ = 0;
  FastDivide extents_[StridedArrays<N>::max_rank];
  std::int64_t strides_[N][StridedArrays<N>::max_rank] = {};
};

}  // namespace mpigrad
