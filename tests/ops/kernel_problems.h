#pragma once
// Random window problems, random operands, and errors in units of the allowed rounding, for tests of the CPU kernels.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/conv/conv_kernels.h"
#include "ops/kernel/channel_rows.h"
#include "ops/kernel/problems.h"
#include "ops/linear/matmul_kernels.h"
#include "ops/pool/pool_kernels.h"
#include "ops/softmax/softmax_kernels.h"

namespace mpigrad::testing {

using namespace mpigrad::cpu;

inline std::mt19937& generator() {
  static std::mt19937 g(20240607);
  return g;
}

inline std::int64_t pick(std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(generator());
}

template <class T>
std::vector<T> random_values(std::int64_t n) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<T> values(static_cast<std::size_t>(n));
  for (auto& v : values) v = static_cast<T>(uniform(generator()));
  return values;
}

template <class T>
std::vector<T> magnitude(std::vector<T> v) {
  for (auto& e : v) e = std::abs(e);
  return v;
}

template <class To, class From>
std::vector<To> cast(const std::vector<From>& v) {
  return {v.begin(), v.end()};
}

inline double dot(const auto& a, const auto& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Largest error in units of the allowed rounding: epsilon times the same sum over magnitudes.
template <class T>
double error_in_epsilons(const std::vector<T>& got, const std::vector<T>& wanted, const std::vector<T>& scale) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double unit = std::numeric_limits<T>::epsilon() * (static_cast<double>(scale[i]) + 1e-3);
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])) / unit;
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

inline constexpr double allowed = 40;  // any order of a sum of n terms is well inside

template <class Problem>
std::string windows(const Problem& p) {
  return fmt::format("batch {} in {} out {} kernel {} stride {} dilation {} pad_low {}", p.batch, p.in, p.out, p.kernel, p.stride,
                     p.dilation, p.pad_low);
}

inline std::string text(const ConvProblem& p) {
  return fmt::format("{} channels {} -> {} groups {}", windows(p), p.in_channels, p.out_channels, p.groups);
}

// Windows of every kind: stride > kernel, dilation, padding on one side only, outputs that end before or beyond the right edge.
template <class Problem>
void random_windows(Problem& p) {
  p.batch = pick(1, 2);
  const std::int64_t kind = pick(0, 3);
  for (std::size_t a = 0; a < 3; ++a) {
    p.in[a] = pick(1, 4) == 1 ? pick(1, 4) : pick(5, 12);
    p.kernel[a] = pick(1, 3);
    p.stride[a] = kind <= 1 ? 1 : pick(1, 4);
    p.dilation[a] = kind == 0 || kind == 2 ? 1 : pick(1, 3);
    p.pad_low[a] = pick(0, p.kernel[a] - 1);
    const std::int64_t reach = p.dilation[a] * (p.kernel[a] - 1) + 1;
    const std::int64_t pad_high = pick(1, 6) == 1 ? pick(-2, 3) : pick(0, reach - 1);
    p.out[a] = std::max<std::int64_t>(1, floor_div(p.in[a] + p.pad_low[a] + pad_high - reach, p.stride[a]) + 1);
  }
}

inline ConvProblem random_conv() {
  static const std::int64_t channels[] = {1, 2, 3, 4, 5, 8, 16, 17, 32, 48};
  ConvProblem p;
  random_windows(p);
  p.groups = pick(0, 3) == 0 ? pick(1, 4) : 1;
  p.in_channels = channels[pick(0, 9)] * p.groups;
  p.out_channels = channels[pick(0, 9)] * p.groups;
  return p;
}

inline PoolProblem random_pool() {
  static const std::int64_t channels[] = {1, 3, 4, 16, 20, 32};
  PoolProblem p;
  random_windows(p);
  p.channels = channels[pick(0, 5)];
  return p;
}

struct Sizes {
  std::int64_t x, w, y;
};
inline Sizes sizes(const ConvProblem& p) {
  return {p.batch * volume(p.in) * p.in_channels, p.out_channels * volume(p.kernel) * (p.in_channels / p.groups),
          p.batch * volume(p.out) * p.out_channels};
}
inline Sizes sizes(const PoolProblem& p) {
  return {p.batch * volume(p.in) * p.channels, 0, p.batch * volume(p.out) * p.channels};
}

template <class T>
std::vector<T> unset(std::int64_t n) {
  return std::vector<T>(static_cast<std::size_t>(n), std::numeric_limits<T>::quiet_NaN());
}

}  // namespace mpigrad::testing
