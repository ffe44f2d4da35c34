#ifndef MPIGRAD_OPS_EXTENTS_H
#define MPIGRAD_OPS_EXTENTS_H
// Extents in three dimensions, padding, and the formula for the outputs of a sliding window. 2D and 1D are unit extents. Compiles
// as CUDA.

#include <array>
#include <concepts>
#include <cstdint>
#include <string_view>

namespace mpigrad {

using Extent3 = std::array<std::int64_t, 3>;  // depth, height, width

// Three values, or one for all three: {.kernel = 3}, {.stride = {1, 2, 2}}.
struct Triple : Extent3 {
  constexpr Triple(std::int64_t all) : Extent3{all, all, all} {}
  constexpr Triple(std::int64_t depth, std::int64_t height, std::int64_t width) : Extent3{depth, height, width} {}
  constexpr Triple(const Extent3& values) : Extent3(values) {}
};

// Two values, or one for both, for operations with height and width.
struct Pair : std::array<std::int64_t, 2> {
  constexpr Pair(std::int64_t both) : std::array<std::int64_t, 2>{both, both} {}
  constexpr Pair(std::int64_t height, std::int64_t width) : std::array<std::int64_t, 2>{height, width} {}
};

// Numbers of elements that padding adds at the low and at the high end of each dimension; a negative number crops. One number,
// {.padding = 1}, one for each dimension, {.padding = {0, 1, 1}}, or {.padding = Padding::sides(low, high)}.
template <class Counts, std::size_t n>
struct PaddingOf {
  Counts low = 0, high = 0;

  constexpr PaddingOf(const Counts& both) : low(both), high(both) {}
  template <std::convertible_to<Counts> T>
  constexpr PaddingOf(const T& both) : PaddingOf(Counts(both)) {}
  template <std::convertible_to<std::int64_t>... Rest>
  requires(sizeof...(Rest) + 2 == n) constexpr PaddingOf(std::int64_t first, std::int64_t second, Rest... rest)
      : PaddingOf(Counts(first, second, rest...)) {}

  // The ends differ.
  static constexpr PaddingOf sides(const Counts& low, const Counts& high) {
    PaddingOf result(low);
    result.high = high;
    return result;
  }
};
using Padding = PaddingOf<Triple, 3>;          // of depth, height, width
using Padding2d = PaddingOf<Pair, 2>;          // of height, width
using Padding1d = PaddingOf<std::int64_t, 1>;  // of one dimension

// The same padding in one dimension more: none along the first.
constexpr Padding of_planes(const Padding2d& p) { return Padding::sides({0, p.low[0], p.low[1]}, {0, p.high[0], p.high[1]}); }
constexpr Padding2d of_lines(const Padding1d& p) { return Padding2d::sides({0, p.low}, {0, p.high}); }

// Outputs of a window along one axis: floor((n + low + high - dilation (k - 1) - 1) / stride) + 1, or 0 where it does not fit.
inline std::int64_t window_outputs(std::int64_t n, std::int64_t kernel, std::int64_t stride, std::int64_t dilation,
                                   std::int64_t low, std::int64_t high) {
  const std::int64_t room = n + low + high - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

// Error: an element of kernel, stride or dilation is below 1.
void require_window(std::string_view op, const Extent3& kernel, const Extent3& stride, const Extent3& dilation);

}  // namespace mpigrad

#endif
