// Pools, products, statistics and softmax: fast CPU kernels against the plain ones, adjoints against forwards.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "ops/backends/blas/blas.h"
#include "ops/backends/implementation.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/ops/kernel_problems.h"

using namespace mpigrad::testing;

namespace {

template <class T>
void compare_pool(const PoolProblem& p) {
  INFO(windows(p) << " channels " << p.channels);
  const Sizes n = sizes(p);
  const auto x = random_values<T>(n.x), g = random_values<T>(n.y);
  auto y = unset<T>(n.y), y_plain = y, y_scale = y, gx = unset<T>(n.x), gx_plain = gx, gx_scale = gx;
  avg_pool_forward(p, x.data(), y.data());
  reference::avg_pool_forward(p, x.data(), y_plain.data());
  reference::avg_pool_forward(p, magnitude(x).data(), y_scale.data());
  CHECK(error_in_epsilons(y, y_plain, y_scale) < allowed);
  avg_pool_adjoint(p, g.data(), gx.data());
  reference::avg_pool_adjoint(p, g.data(), gx_plain.data());
  reference::avg_pool_adjoint(p, magnitude(g).data(), gx_scale.data());
  CHECK(error_in_epsilons(gx, gx_plain, gx_scale) < allowed);
  CHECK(dot(y, g) == doctest::Approx(dot(x, gx)).epsilon(1e-4));
}

}  // namespace

TEST_CASE("instruction sets: our own loops name those that they use") {
  const auto sets = mpigrad::cpu::instruction_sets();
  CAPTURE(sets);
#if defined(__aarch64__)
  CHECK((sets.find("own loops NEON") != sets.npos || sets.find("own loops SVE") != sets.npos));
#elif defined(__x86_64__)
  CHECK((sets.find("own loops AVX") != sets.npos || sets.find("own loops SSE2") != sets.npos));
#else
  CHECK(sets.find("own loops ") != sets.npos);
#endif
  CHECK((sets.find("oneDNN ") != sets.npos) == mpigrad::cpu::onednn_present());
}

TEST_CASE("sums and broadcasts and concatenations of many short rows") {
  using namespace mpigrad;
  const Shape shape{3, 37, 61, 5};  // more rows than a thread takes at once
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 7 % 23);
  for (const auto dtype : {DType::float32, DType::float64}) {
    const auto x = from_vector(shape, values, dtype);
    for (const auto& axes : {std::vector{1, 2}, {0, 2}, {0, 1, 2}, {2, 3}, {1}, {3}, {0, 1, 2, 3}}) {
      Shape kept = shape;
      for (const int axis : axes) kept[axis] = 1;
      const auto place = [&](std::int64_t i) {  // the position of element i among the kept elements
        std::int64_t at = 0;
        for (int d = 0; d < 4; ++d) at = at * kept[d] + (kept[d] == 1 ? 0 : i / shape.elements(d + 1, 4) % shape[d]);
        return static_cast<std::size_t>(at);
      };
      std::vector<double> sums(static_cast<std::size_t>(kept.elements())), repeated;
      for (std::int64_t i = 0; i < shape.elements(); ++i) sums[place(i)] += values[static_cast<std::size_t>(i)];
      for (std::int64_t i = 0; i < shape.elements(); ++i) repeated.push_back(sums[place(i)]);
      CHECK(sum(x, axes, true).to_vector() == sums);
      CHECK(broadcast_to(from_vector(kept, sums, dtype), shape).to_vector() == repeated);
    }
    const auto last = slice(x, 3, 4, 5), others = slice(x, 3, 0, 4);
    CHECK(concatenate({others, last}, 3).to_vector() == values);
    CHECK(concatenate({slice(x, 3, 0, 1), slice(x, 3, 1, 2)}, 3).to_vector() == slice(x, 3, 0, 2).to_vector());
  }
}

TEST_CASE("average pools agree with the plain ones and are transposes") {
  for (int i = 0; i < 200; ++i) compare_pool<float>(random_pool());
  for (int i = 0; i < 20; ++i) compare_pool<double>(random_pool());
  PoolProblem p{.batch = 0,
                .in = {4, 4, 4},
                .out = {2, 2, 2},
                .kernel = {3, 3, 3},
                .stride = {2, 2, 2},
                .pad_low = {1, 1, 1},
                .channels = 16};
  compare_pool<float>(p);
  // Fewer windows along the width than would fit; kernels for AVX2 once got this wrong and wrote after the end of the result.
  compare_pool<float>({.batch = 2,
                       .in = {2, 11, 9},
                       .out = {3, 11, 8},
                       .kernel = {3, 2, 2},
                       .stride = {1, 1, 1},
                       .pad_low = {2, 0, 1},
                       .channels = 32});
  p.batch = 1;
  p.out = {0, 2, 2};
  compare_pool<float>(p);
  p.in = {0, 4, 4};
  p.out = {2, 2, 2};
  compare_pool<float>(p);
}

TEST_CASE_TEMPLATE("max pool: winners, ties, NaN, padding, and its two linear maps", T, float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN(), infinity = std::numeric_limits<T>::infinity();
  PoolProblem p{.batch = 1,
                .in = {1, 1, 6},
                .out = {1, 1, 5},
                .kernel = {1, 1, 2},
                .stride = {1, 1, 2},
                .pad_low = {0, 0, 1},
                .channels = 1};
  const std::vector<T> x{-infinity, 2, 2, nan, 5, -1};  // windows (., -inf) (2, 2) (nan, 5) (-1, .) (., .)
  std::vector<T> y(5);
  std::vector<std::int32_t> winner(5);
  max_pool_forward(p, x.data(), y.data(), winner.data());
  CHECK(winner == std::vector<std::int32_t>{1, 0, 0, 0, -1});
  CHECK(y[0] == -infinity);
  CHECK(y[1] == 2);
  CHECK(std::isnan(y[2]));
  CHECK(y[3] == -1);
  CHECK(y[4] == -infinity);

  for (int i = 0; i < 50; ++i) {
    p = random_pool();
    INFO(windows(p));
    const Sizes n = sizes(p);
    const auto values = random_values<T>(n.x), g = random_values<T>(n.y);
    auto best = unset<T>(n.y), gathered_back = best, gx = unset<T>(n.x);
    std::vector<std::int32_t> places(static_cast<std::size_t>(n.y), -2);
    max_pool_forward(p, values.data(), best.data(), places.data());
    max_pool_gather(p, values.data(), places.data(), gathered_back.data());
    for (std::size_t o = 0; o < best.size(); ++o) CHECK(gathered_back[o] == (places[o] < 0 ? T{0} : best[o]));
    max_pool_scatter(p, g.data(), places.data(), gx.data());
    CHECK(dot(gathered_back, g) == doctest::Approx(dot(values, gx)).epsilon(1e-4));
  }
}

TEST_CASE_TEMPLATE("matmul agrees with the plain one", T, float, double) {
  static const std::int64_t extents[] = {0, 1, 2, 3, 8, 17, 64, 100, 257};
  for (int i = 0; i < 400; ++i) {
    MatmulProblem p{.batch = pick(0, 9) == 0 ? 0 : pick(1, 3),
                    .m = extents[pick(0, 8)],
                    .n = extents[pick(0, 8)],
                    .k = extents[pick(0, 8)],
                    .transpose_a = pick(0, 1) == 1,
                    .transpose_b = pick(0, 1) == 1};
    p.stride_a = pick(0, 2) == 0 ? 0 : p.m * p.k;
    p.stride_b = pick(0, 2) == 0 ? 0 : p.k * p.n;
    INFO("batch " << p.batch << " m " << p.m << " n " << p.n << " k " << p.k << " transposes " << p.transpose_a << p.transpose_b
                  << " strides " << p.stride_a << " " << p.stride_b);
    const auto a = random_values<T>(p.batch * p.m * p.k), b = random_values<T>(p.batch * p.k * p.n), bias = random_values<T>(p.n);
    const auto abs_a = magnitude(a), abs_b = magnitude(b), abs_bias = magnitude(bias);
    for (const Epilogue& e : {Epilogue{}, Epilogue{.bias = bias.data(), .fused = {0.01}}, Epilogue{.fused = {0}}}) {
      auto c = unset<T>(p.batch * p.m * p.n), plain = c, scale = c;
      matmul(p, a.data(), b.data(), c.data(), e);
      reference::matmul(p, a.data(), b.data(), plain.data(), e);
      reference::matmul(p, abs_a.data(), abs_b.data(), scale.data(), {.bias = abs_bias.data()});
      CHECK(error_in_epsilons(c, plain, scale) < allowed);
    }
  }
}

TEST_CASE("the plain product adds a million numbers of one sign without losing digits") {
  constexpr std::int64_t n = 3, k = 1 << 20;
  std::vector<float> a(k), b(n * k), c(n);
  std::vector<double> expected(n);
  for (std::int64_t l = 0; l < k; ++l) {
    a[l] = 0.1F + 1e-3F * static_cast<float>(l % 7);
    for (std::int64_t j = 0; j < n; ++j) {
      b[l * n + j] = 0.3F + 1e-2F * static_cast<float>((l + j) % 5);
      expected[j] += static_cast<double>(a[l]) * static_cast<double>(b[l * n + j]);
    }
  }
  plain_gemm(false, false, 1, n, k, a.data(), k, b.data(), n, false, c.data(), n);
  for (std::int64_t j = 0; j < n; ++j) CHECK(static_cast<double>(c[j]) == doctest::Approx(expected[j]).epsilon(3e-7));
  plain_gemm(false, false, 1, n, k, a.data(), k, b.data(), n, true, c.data(), n);
  for (std::int64_t j = 0; j < n; ++j) CHECK(static_cast<double>(c[j]) == doctest::Approx(2 * expected[j]).epsilon(3e-7));
}

TEST_CASE("OpenBLAS uses the kernels for the processor's instructions") {
  CHECK(better_blas_kernels("Prescott", false, false).empty());
  CHECK(better_blas_kernels("Prescott", true, false) == "Haswell");
  CHECK(better_blas_kernels("Zen", true, false).empty());
  CHECK(better_blas_kernels("Zen", true, true) == "SkylakeX");
  CHECK(better_blas_kernels("Cooperlake", true, true).empty());
#if defined(__x86_64__)
  const std::string before = mpigrad::cpu::blas_kernels();
  if (!use_blas_kernels("Prescott")) return;  // built for one processor, or not there
  constexpr std::int64_t n = 33;
  const auto a = random_values<double>(n * n), b = random_values<double>(n * n);
  auto c = unset<double>(n * n), plain = c;
  plain_gemm(false, true, n, n, n, a.data(), n, b.data(), n, false, plain.data(), n);
  for (const auto* kernels : {"Prescott", before.c_str()}) {
    REQUIRE(use_blas_kernels(kernels));
    CHECK(mpigrad::cpu::blas_kernels() == kernels);
    gemm(false, true, n, n, n, a.data(), n, b.data(), n, false, c.data(), n);
    for (std::size_t i = 0; i < c.size(); ++i) CHECK(c[i] == doctest::Approx(plain[i]).epsilon(1e-12));
  }
#endif
}

TEST_CASE("OpenBLAS keeps its kernels while other threads may compute") {
  const std::string before = mpigrad::cpu::blas_kernels();
  const char* const set = std::getenv("OPENBLAS_CORETYPE");
  const std::string named = set ? set : "";
  if (!use_blas_kernels("Prescott")) return;
  unsetenv("OPENBLAS_CORETYPE");
  {
    // With this one more threads than OpenBLAS has.
    std::latch end(1);
    std::vector<std::jthread> others;
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) others.emplace_back([&] { end.wait(); });
    CHECK(!mpigrad::cpu::choose_blas_kernels());
    CHECK(mpigrad::cpu::blas_kernels() == "Prescott");
    end.count_down();
  }
  CHECK(use_blas_kernels(before));
  if (set) setenv("OPENBLAS_CORETYPE", named.c_str(), 1);
}

TEST_CASE_TEMPLATE("channel statistics", T, float, double) {
  for (const auto& [rows, channels] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {1, 1}, {7, 3}, {5000, 16}, {100000, 5}, {33, 20000}}) {
    const std::int64_t count = rows * channels;
    auto x = random_values<T>(count);
    for (auto& v : x) v = v + T{1000};  // sums of squares would lose every digit in float
    const auto g = random_values<T>(count), a = random_values<T>(channels), b = random_values<T>(channels);
    auto mean = unset<T>(channels), m2 = mean, sums = mean, dots = mean, y = unset<T>(count);
    channel_moments(rows, channels, x.data(), mean.data(), m2.data());
    channel_dots(rows, channels, g.data(), x.data(), mean.data(), sums.data(), dots.data());
    channel_affine(rows, channels, x.data(), mean.data(), a.data(), b.data(), {}, y.data());
    double worst = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0, squares = 0, g_sum = 0, g_dot = 0;
      const auto ci = static_cast<std::size_t>(c);
      for (std::int64_t r = 0; r < rows; ++r) sum += static_cast<double>(x[static_cast<std::size_t>(r * channels + c)]);
      const double m = rows > 0 ? sum / static_cast<double>(rows) : 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto i = static_cast<std::size_t>(r * channels + c);
        squares += std::pow(static_cast<double>(x[i]) - m, 2);
        g_sum += static_cast<double>(g[i]);
        g_dot += static_cast<double>(g[i]) * (static_cast<double>(x[i]) - static_cast<double>(mean[ci]));
        worst = std::max(worst, std::abs(static_cast<double>(y[i]) - static_cast<double>((x[i] - mean[ci]) * a[ci] + b[ci])));
      }
      worst = std::max({worst, std::abs(static_cast<double>(mean[ci]) - m) / 1000,
                        std::abs(static_cast<double>(m2[ci]) - squares) / (1 + squares),
                        std::abs(static_cast<double>(sums[ci]) - g_sum) / (1 + std::abs(g_sum)),
                        std::abs(static_cast<double>(dots[ci]) - g_dot) / (1 + std::abs(g_dot))});
    }
    CHECK(worst < 4 * std::numeric_limits<T>::epsilon() + 1e-9);
  }
}

TEST_CASE_TEMPLATE("softmax", T, float, double) {
  const auto x = random_values<T>(7 * 33);
  auto y = unset<T>(7 * 33), logs = y;
  softmax(7, 33, x.data(), y.data());
  log_softmax(7, 33, x.data(), logs.data());
  for (std::size_t r = 0; r < 7; ++r) {
    double sum = 0, total = 0;
    for (std::size_t i = 0; i < 33; ++i) sum += std::exp(static_cast<double>(x[r * 33 + i]));
    for (std::size_t i = 0; i < 33; ++i) {
      total += static_cast<double>(y[r * 33 + i]);
      CHECK(static_cast<double>(logs[r * 33 + i]) ==
            doctest::Approx(static_cast<double>(x[r * 33 + i]) - std::log(sum)).epsilon(1e-5));
      CHECK(static_cast<double>(y[r * 33 + i]) ==
            doctest::Approx(std::exp(static_cast<double>(x[r * 33 + i])) / sum).epsilon(1e-5));
    }
    CHECK(total == doctest::Approx(1.0));
  }
  const std::vector<T> large{1000, 1000, -1000};
  std::vector<T> z(3);
  softmax(1, 3, large.data(), z.data());
  CHECK(z == std::vector<T>{T(0.5), T(0.5), 0});
}
