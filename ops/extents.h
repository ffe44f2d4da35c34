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

// Values of the padding at the ends of x = [a b c], shown with two elements at either end, and numpy.pad's name of each mode:
enum class PaddingMode : std::uint8_t {
  zeros,      // 0 0 | a b c | 0 0   constant. Pooling: no elements (a maximum ignores them)
  circular,   // b c | a b c | a b   wrap: a periodic box
  replicate,  // a a | a b c | c c   edge
  reflect,    // c b | a b c | b a   reflect
  symmetric,  // b a | a b c | c b   symmetric
};

// One mode for each of n dimensions, or one for all.
template <std::size_t n>
struct PaddingModes : std::array<PaddingMode, n> {
  constexpr PaddingModes(PaddingMode all) { this->fill(all); }
  template <std::same_as<PaddingMode>... Rest>
  requires(sizeof...(Rest) + 2 == n) constexpr PaddingModes(PaddingMode first, PaddingMode second, Rest... rest)
      : std::array<PaddingMode, n>{first, second, rest...} {}
};

// Numbers of elements that padding adds at the low and at the high end of each dimension; a negative number crops. One number,
// {.padding = 1}, one for each dimension, {.padding = {0, 1, 1}}, both with a mode, {.padding = {1, PaddingMode::circular}}, or
// {.padding = Padding::sides(low, high)}. Modes may differ by dimension and side.
template <class Counts, std::size_t n>
struct PaddingOf {
  using Modes = PaddingModes<n>;
  Counts low = 0, high = 0;
  Modes low_mode = PaddingMode::zeros, high_mode = PaddingMode::zeros;

  constexpr PaddingOf(const Counts& both, const Modes& mode = PaddingMode::zeros)
      : low(both), high(both), low_mode(mode), high_mode(mode) {}
  template <std::convertible_to<Counts> T>
  constexpr PaddingOf(const T& both, const Modes& mode = PaddingMode::zeros) : PaddingOf(Counts(both), mode) {}
  template <std::convertible_to<std::int64_t>... Rest>
  requires(sizeof...(Rest) + 2 == n) constexpr PaddingOf(std::int64_t first, std::int64_t second, Rest... rest)
      : PaddingOf(Counts(first, second, rest...)) {}

  // The ends differ in numbers, and perhaps in modes.
  static constexpr PaddingOf sides(const Counts& low, const Counts& high, const Modes& mode = PaddingMode::zeros) {
    return sides(low, high, mode, mode);
  }
  static constexpr PaddingOf sides(const Counts& low, const Counts& high, const Modes& low_mode, const Modes& high_mode) {
    PaddingOf result(low, low_mode);
    result.high = high, result.high_mode = high_mode;
    return result;
  }
};
using Padding = PaddingOf<Triple, 3>;          // of depth, height, width
using Padding2d = PaddingOf<Pair, 2>;          // of height, width
using Padding1d = PaddingOf<std::int64_t, 1>;  // of one dimension

// The ends that add copies of elements, as their mode is not zeros, and the ends that add zeros or crop; other ends have 0.
constexpr Padding copies_of(Padding p) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (p.low_mode[i] == PaddingMode::zeros || p.low[i] < 0) p.low[i] = 0;
    if (p.high_mode[i] == PaddingMode::zeros || p.high[i] < 0) p.high[i] = 0;
  }
  return p;
}
constexpr Padding without_copies(Padding p) {
  const auto copies = copies_of(p);
  for (std::size_t i = 0; i < 3; ++i) p.low[i] -= copies.low[i], p.high[i] -= copies.high[i];
  return Padding::sides(p.low, p.high);  // with the mode zeros only
}
constexpr bool adds_copies(const Padding& p) {
  const auto copies = copies_of(p);
  for (std::size_t i = 0; i < 3; ++i)
    if (copies.low[i] != 0 || copies.high[i] != 0) return true;
  return false;
}

// The same padding in one dimension more: none along the first.
constexpr Padding of_planes(const Padding2d& p) {
  const auto of = [](const Padding2d::Modes& m) { return Padding::Modes(PaddingMode::zeros, m[0], m[1]); };
  return Padding::sides({0, p.low[0], p.low[1]}, {0, p.high[0], p.high[1]}, of(p.low_mode), of(p.high_mode));
}
constexpr Padding2d of_lines(const Padding1d& p) {
  const auto of = [](const Padding1d::Modes& m) { return Padding2d::Modes(PaddingMode::zeros, m[0]); };
  return Padding2d::sides({0, p.low}, {0, p.high}, of(p.low_mode), of(p.high_mode));
}

// "circular". padding_mode() is the inverse; Error: no mode has this name.
std::string_view name_of(PaddingMode mode);
PaddingMode padding_mode(std::string_view name);

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
