#pragma once
// Compares the kernels of convolutions with the plain ones, in units of the allowed rounding or bit by bit, and as adjoints of
// each other.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/backends/winograd/winograd.h"
#include "ops/conv/conv_gathered.h"
#include "tests/ops/kernel_problems.h"

namespace mpigrad::testing {

// The three convolutions of a namespace.
#define MPIGRAD_CONVOLUTIONS(NAME, SPACE) \
  struct NAME {                           \
    template <class... A>                 \
    static void forward(A... a) {         \
      SPACE::conv_forward(a...);          \
    }                                     \
    template <class... A>                 \
    static void data(A... a) {            \
      SPACE::conv_data(a...);             \
    }                                     \
    template <class... A>                 \
    static void weight(A... a) {          \
      SPACE::conv_weight(a...);           \
    }                                     \
  }
MPIGRAD_CONVOLUTIONS(Reference, cpu::reference);
MPIGRAD_CONVOLUTIONS(Gathered, cpu::gathered);
MPIGRAD_CONVOLUTIONS(Small, cpu::small);
MPIGRAD_CONVOLUTIONS(Winograd, cpu::winograd);
MPIGRAD_CONVOLUTIONS(Fast, cpu);
#undef MPIGRAD_CONVOLUTIONS

// Outputs of a tile, and taps, are computed from the same sums, so a small one shows the rounding of the others, too.
template <class Kernels>
constexpr bool shares_rounding = std::is_same_v<Kernels, Winograd>;

template <class Kernels, class T>
void compare_conv(const ConvProblem& p) {
  INFO(text(p));
  const Sizes n = sizes(p);
  const auto x = random_values<T>(n.x), w = random_values<T>(n.w), g = random_values<T>(n.y);
  const auto bias = random_values<T>(p.out_channels), data_bias = random_values<T>(p.in_channels);
  const auto compare = [](std::int64_t count, auto run, auto plain, auto scale) {
    auto got = unset<T>(count), wanted = unset<T>(count), unit = unset<T>(count);
    run(got.data());
    plain(wanted.data());
    scale(unit.data());
    if constexpr (shares_rounding<Kernels>) std::ranges::fill(unit, std::ranges::max(unit));
    CHECK(error_in_epsilons(got, wanted, unit) < allowed);
  };
  const auto ax = magnitude(x), aw = magnitude(w), ag = magnitude(g), ab = magnitude(bias), adb = magnitude(data_bias);
  for (const Epilogue& e :
       {Epilogue{}, Epilogue{.bias = bias.data()}, Epilogue{.bias = bias.data(), .fused = {0.01}}, Epilogue{.fused = {0}}})
    compare(
        n.y, [&](T* y) { Kernels::forward(p, x.data(), w.data(), y, e); },
        [&](T* y) { reference::conv_forward(p, x.data(), w.data(), y, e); },
        [&](T* y) { reference::conv_forward(p, ax.data(), aw.data(), y, {.bias = ab.data()}); });
  for (const Epilogue& e : {Epilogue{}, Epilogue{.bias = data_bias.data(), .fused = {0.3}}})
    compare(
        n.x, [&](T* y) { Kernels::data(p, g.data(), w.data(), y, e); },
        [&](T* y) { reference::conv_data(p, g.data(), w.data(), y, e); },
        [&](T* y) { reference::conv_data(p, ag.data(), aw.data(), y, {.bias = adb.data()}); });
  compare(
      n.w, [&](T* y) { Kernels::weight(p, x.data(), g.data(), y); },
      [&](T* y) { reference::conv_weight(p, x.data(), g.data(), y); },
      [&](T* y) { reference::conv_weight(p, ax.data(), ag.data(), y); });
}

// Small integers; float holds all their sums exactly, so every kernel must give the same bits.
inline std::vector<float> small_integers(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (auto& v : values) v = static_cast<float>(pick(-2, 2));
  return values;
}

template <class Kernels>
void equal_conv(const ConvProblem& p) {
  INFO(text(p));
  const Sizes n = sizes(p);
  const auto x = small_integers(n.x), w = small_integers(n.w), g = small_integers(n.y);
  auto y = unset<float>(n.y), gx = unset<float>(n.x), gw = unset<float>(n.w), plain_y = y, plain_gx = gx, plain_gw = gw;
  Kernels::forward(p, x.data(), w.data(), y.data(), Epilogue{});
  Kernels::data(p, g.data(), w.data(), gx.data(), Epilogue{});
  Kernels::weight(p, x.data(), g.data(), gw.data());
  reference::conv_forward(p, x.data(), w.data(), plain_y.data());
  reference::conv_data(p, g.data(), w.data(), plain_gx.data());
  reference::conv_weight(p, x.data(), g.data(), plain_gw.data());
  CHECK((y == plain_y));
  CHECK((gx == plain_gx));
  CHECK((gw == plain_gw));
}

template <class Kernels, class T>
void adjoints_conv(const ConvProblem& p) {
  INFO(text(p));
  const Sizes n = sizes(p);
  const auto x = random_values<T>(n.x), w = random_values<T>(n.w), g = random_values<T>(n.y);
  auto y = unset<T>(n.y), gx = unset<T>(n.x), gw = unset<T>(n.w);
  Kernels::forward(p, x.data(), w.data(), y.data());
  Kernels::data(p, g.data(), w.data(), gx.data());
  Kernels::weight(p, x.data(), g.data(), gw.data());
  const double tolerance = std::numeric_limits<T>::epsilon() * 20 * (dot(magnitude(y), magnitude(g)) + 1);
  CHECK(std::abs(dot(y, g) - dot(x, gx)) < tolerance);
  CHECK(std::abs(dot(y, g) - dot(w, gw)) < tolerance);
}

}  // namespace mpigrad::testing
